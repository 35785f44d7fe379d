#!/usr/bin/env bash
# A savepoint's day, verb by verb; each is shown as it is typed.
set -euxo pipefail
export SEAMARK_STORAGE=checkpoints

seamark run -d app.py                              # state on the JVM's heap: hashmap
seamark savepoint accounts savepoints              # the job goes on
seamark stop -p savepoints accounts | tee stopped.txt
path=$(sed -n 's/.*Path: //p' stopped.txt)
seamark savepoint inspect "$path"
python show.py

# The state moves into RocksDB, and onto four partitions; the name stays.
seamark run -d -s "$path" -p 4 -D checkpoint.state_backend=rocksdb app.py
seamark checkpoint accounts
seamark stop --no-savepoint accounts               # its checkpoints are retained
python show.py

# Back from the newest retained checkpoint, in another storage: same backend, same partitions.
export SEAMARK_STORAGE=other
seamark run -d -s checkpoints/accounts -D checkpoint.state_backend=rocksdb app.py
seamark checkpoint accounts
seamark stop --no-savepoint accounts
python show.py
