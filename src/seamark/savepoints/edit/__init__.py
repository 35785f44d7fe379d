"""Savepoints made offline: other state, other offsets, new ones from DataFrames; and
differences."""
