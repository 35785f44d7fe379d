"""A process killed by the conformance suite: ``python -m seamark.verify.child write|commit|abort``.

It is outside the suite's own package, because importing pytest would double such a process's cost.
Reads one pickled tuple from standard input (made by the suite: sink, whether to die, context, …)
and writes the pickled result to standard output. It then ends with SIGKILL if told to die.
"""

import os
import pickle
import signal
import sys

import pyarrow as pa


def main() -> None:
    """Run the action named by the first argument."""
    sink, die, context, data = pickle.load(sys.stdin.buffer)
    if sys.argv[1] == "write":
        writer = sink.create_writer(context)
        for batch in pa.ipc.open_stream(data):
            writer.write(batch)
        result = [sink.dump(committable) for committable in writer.prepare_commit()]
    else:
        end = getattr(sink.create_committer(context), sys.argv[1])
        result = [how.name for how in end([sink.load(one) for one in data])]
    sys.stdout.buffer.write(pickle.dumps(result))
    sys.stdout.buffer.flush()
    if die:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
