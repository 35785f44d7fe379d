"""A job with a slow keyed function, to be killed; its argument: `home`, `slow_s`, `config`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.spark.jobs.keyed_programs import numbering_job

asked = json.loads(sys.argv[1])
numbering_job(Path(asked["home"]), asked["slow_s"], **asked["config"]).run(parallelism=2)
