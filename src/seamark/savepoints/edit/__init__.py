"""Savepoints that no job took: other state, other offsets, made of DataFrames; and what differs."""
