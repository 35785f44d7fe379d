"""File sink: files in a directory on local disks, HDFS or S3, pending until the epoch is decided.

`sink.py` is the configuration. `formats.py` turns Arrow batches into Parquet, JSON lines or CSV;
`sinks/internal/partitions.py` lays rows out as Hive does. `writer.py` runs in tasks, `committer.py`
in the driver. A pending file (`pending.py`) is either a file elsewhere in the directory, published
by a rename, or an S3 upload, published by its completion. `pending_file.py` is the committable, and
the file while a task writes it.
"""

from seamark.sinks.files.sink import FileSink as FileSink
