"""One suite, every sink: `suite.py`; `test_<sink>.py` plugs a sink in."""
