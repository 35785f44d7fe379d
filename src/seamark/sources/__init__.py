"""The sources: what a user writes for each system, and the Spark reader it stands for.

`kafka.py`: KafkaSource; `files.py`: FileSource; `datagen.py`: DatagenSource, with its columns'
generators in `fields.py`; `socket.py`: SocketSource. All follow `contracts/source.py`: frozen
values without any open resource. Spark itself reads; datagen's rows are made in
`runtime/datagen.py`. `settings.py` holds the checks that they share.
"""
