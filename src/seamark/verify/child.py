"""A process that the conformance suite kills: ``python -m seamark.verify.child write|commit``.

It is not in the suite's own package, which imports pytest: half of what such a process would cost.
Reads one pickled tuple from standard input (the suite's own: sink, whether to die, context, …) and
writes the pickled result to standard output; then it ends with SIGKILL if it is told to.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys

import pyarrow as pa


def main() -> None:
    """Do what the first argument says."""
    sink, die, context, data = pickle.load(sys.stdin.buffer)
    if sys.argv[1] == "write":
        writer = sink.create_writer(context)
        for batch in pa.ipc.open_stream(data):
            writer.write(batch)
        result = [sink.dump(committable) for committable in writer.prepare_commit()]
    else:
        committer = sink.create_committer(context)
        result = [how.name for how in committer.commit([sink.load(one) for one in data])]
    sys.stdout.buffer.write(pickle.dumps(result))
    sys.stdout.buffer.flush()
    if die:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
