"""Real servers that tests start and kill: one module per system."""
