"""A worker of `test_sink_guard.py`: writes batch after batch of one key, of rising value, until it
is refused. Reads one pickled tuple (sink, context) from standard input; says each value on standard
output, and at last why it may not write any more.
"""

from __future__ import annotations

import itertools
import pickle
import sys

from seamark.model.errors import PreCommitError
from tests.integration.redis import sink_kit as kit


def main() -> None:
    sink, context = pickle.load(sys.stdin.buffer)
    writer = sink.create_writer(context)
    for value in itertools.count(1):
        try:
            writer.write(kit.versions([1], value))
        except PreCommitError as error:
            print(error, flush=True)
            return
        print(value, flush=True)


if __name__ == "__main__":
    main()
