"""Real servers for development and tests, fetched and started without root: see `kafka.py`."""
