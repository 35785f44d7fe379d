"""Proof on real systems: the conformance suite for sinks, Seamark's own and yours (`conformance/`);
and a job under faults with every row counted (`trial.py`, judged by `checker.py`)."""
