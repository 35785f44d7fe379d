"""The Java of this tree, which runs in Spark's JVMs; `compiled.py` compiles it."""
