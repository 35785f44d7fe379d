"""Spark's state stores: their layout, their rows and their files."""
