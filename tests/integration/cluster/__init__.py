"""A real standalone cluster: `spark_cluster.py`; the job that runs on it: `app.py`."""
