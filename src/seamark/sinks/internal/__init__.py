"""What sinks share, none of it public: `staged_files.py`, `columns.py`."""
