"""The Java sources, compiled by `compiled.py`; they run in Spark's JVMs."""
