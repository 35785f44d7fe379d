"""One start of a drawn program's job, to be killed; its argument: the fields of `Program`, and
those of `Program.run`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.spark.plans.test_batch_oracle import Program

asked = json.loads(sys.argv[1])
root, start = Path(asked.pop("root")), asked.pop("start")
sinks = tuple((node, tuple(steps), anew) for node, steps, anew in asked.pop("sinks"))
Program(sinks, **asked).run(root, start)
