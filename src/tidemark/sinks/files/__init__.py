"""Files in a local directory: written pending, published by rename.

`sink.py` is the configuration, `formats.py` turns Arrow batches into Parquet, JSON lines or CSV,
`writer.py` writes pending files, `committer.py` renames them.
"""

from tidemark.sinks.files.sink import FileSink as FileSink
