"""Files on shared file systems, for processes without a JVM: Spark's Python workers, the driver.

`open_directory` (`uri.py`) gives a `Directory` (`directory.py`) for a URI: `local.py` serves paths
and ``file:``, `hdfs.py` ``hdfs:``, `s3.py` ``s3a:`` and ``s3:``. The driver reads the stores'
settings from Spark's Hadoop configuration as `HadoopSettings` (`settings.py`,
`runtime/hadoop_files.py`); every `SinkContext` and `WriterContext` brings them along. The
checkpoint's own records go another way: `contracts/checkpoint_files.py`.
"""

from seamark.file_systems.directory import Directory as Directory
from seamark.file_systems.directory import NewFile as NewFile
from seamark.file_systems.directory import RenamingDirectory as RenamingDirectory
from seamark.file_systems.directory import in_threads as in_threads
from seamark.file_systems.settings import HadoopSettings as HadoopSettings
from seamark.file_systems.uri import open_directory as open_directory
from seamark.file_systems.uri import shared_uri as shared_uri
