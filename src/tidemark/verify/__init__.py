"""Proof: the conformance suite for sinks, Tidemark's own and yours (`conformance/`)."""
