"""`seamark demo`: exactly-once, shown. `kills.py` runs one of the two programs as a user would,
kills it on its way, and counts what readers see; `workload.py` has input, expectation and readers.
"""
