"""The coordinator, simulated."""
