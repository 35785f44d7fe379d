"""Real servers for tests to start and kill: one module per system."""
