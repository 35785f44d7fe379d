"""Rows spooled in the checkpoint and sent after the decision, for systems without transactions.

`sink.py` has the base class and the tasks' writer. `committer.py` sends from the driver. `http.py`
and `spark_format.py` are the ready-made sinks.
"""

from seamark.sinks.write_ahead.sink import WriteAheadSink as WriteAheadSink
