"""A process that the suite kills: ``python -m tests.conformance.child write|commit``.

Reads one pickled tuple from standard input (the suite's own: sink, context, ...) and writes the
pickled result to standard output. ``write`` ends with SIGKILL when it is told to.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys

import pyarrow as pa


def main() -> None:
    action = sys.argv[1]
    sink, context, *payload = pickle.load(sys.stdin.buffer)
    if action == "write":
        data, die = payload
        writer = sink.create_writer(context)
        for batch in pa.ipc.open_stream(data):
            writer.write(batch)
        result = [sink.dump(committable) for committable in writer.prepare_commit()]
    else:
        (dumped,), die = payload, False
        committer = sink.create_committer(context)
        result = [how.name for how in committer.commit([sink.load(data) for data in dumped])]
    sys.stdout.buffer.write(pickle.dumps(result))
    sys.stdout.buffer.flush()
    if die:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
