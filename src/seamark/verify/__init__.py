"""Proof: the conformance suite for sinks, Seamark's own and yours (`conformance/`)."""
