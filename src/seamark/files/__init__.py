"""Files on shared stores: one protocol, `Directory` (`directory.py`), for records and for rows.

`open_directory` (`uri.py`) gives one for a URI, without a JVM: `local.py` serves paths and
``file:``, `hdfs.py` ``hdfs:``, `s3.py` ``s3a:`` and ``s3:``, `object_store.py` ``gs:`` and
``abfss:``. A driver's records on any store but
the local go through its JVM (`spark/hadoop_files.py`). The driver reads the stores' settings from
Spark's Hadoop configuration as `HadoopSettings` (`settings.py`); every `SinkContext` and
`WriterContext` brings them along. `deadline.py` keeps a call from hanging, `location.py` has the
paths that a user may give.
"""

from seamark.files.directory import Directory as Directory
from seamark.files.directory import NewFile as NewFile
from seamark.files.directory import RenamingDirectory as RenamingDirectory
from seamark.files.directory import RowDirectory as RowDirectory
from seamark.files.directory import in_threads as in_threads
from seamark.files.directory import numbered as numbered
from seamark.files.settings import HadoopSettings as HadoopSettings
from seamark.files.uri import open_directory as open_directory
from seamark.files.uri import open_for_rows as open_for_rows
from seamark.files.uri import open_without_spark as open_without_spark
from seamark.files.uri import shared_uri as shared_uri
