"""The sinks, one package per system, and `write_ahead` for systems without transactions.

Each has `sink.py` (the configuration that a user writes), `writer.py` (runs in executor tasks) and
`committer.py` (runs in the driver), after `contracts/sink.py`. Drivers of systems are imported
inside functions, so that a job needs only those it uses. `internal/` is what file-based sinks
share.
"""
