"""The sources: the user's configuration for each system, and its Spark reader.

`kafka.py`: KafkaSource; `files.py`: FileSource; `datagen.py`: DatagenSource, with its columns'
generators in `fields.py`; `socket.py`: SocketSource. All follow `contracts/source.py`: frozen
values without any open resource. Spark itself reads; `spark/datagen.py` makes datagen's rows.
`settings.py` holds the shared checks.
"""
