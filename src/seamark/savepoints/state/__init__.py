"""Spark's state stores: how they lie, their rows and their files."""
