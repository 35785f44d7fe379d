"""Savepoints made offline: other state, offsets, new ones from DataFrames; differences."""
