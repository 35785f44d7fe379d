"""The checkpoint coordinator, the records that it stores, and the store.

`coordinator.py` drives the protocol; `store.py` reads and writes what docs/FORMAT.md specifies.
"""
