"""Files in a directory on local disks, HDFS or S3: pending until the epoch is decided.

`sink.py` is the configuration; `partitions.py` lays rows out as Hive does, `formats.py` turns Arrow
batches into Parquet, JSON lines or CSV; `writer.py` runs in tasks, `committer.py` in the driver. A
file that is pending (`pending.py`) is one of two things: a file elsewhere in the directory that a
rename publishes (`renamed_files.py`), or an S3 upload that is completed (`uploads.py`).
`pending_file.py` is its value, the committable.
"""

from seamark.sinks.files.sink import FileSink as FileSink
