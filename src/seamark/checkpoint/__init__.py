"""The checkpoint coordinator, its stored records, and the store.

`coordinator.py` drives the protocol; `store.py` reads and writes the files of docs/FORMAT.md.
"""
