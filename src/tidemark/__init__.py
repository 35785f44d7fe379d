"""Tidemark: state consistency for PySpark Structured Streaming."""
