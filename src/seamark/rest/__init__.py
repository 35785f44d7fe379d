"""The REST interface of a running job: Flink's nouns and fields, in the driver's own process.

`live_job.py` has the data of its pages, `models.py` the shape of each answer (and of the OpenAPI
document), `routes.py` the paths. `server.py` runs them in a thread.
"""
