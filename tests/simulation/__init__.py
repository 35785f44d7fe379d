"""The coordinator itself, under schedules made from seeds: ``make simulate``.

`machine.py` owns threads and clock, `threads.py` gives them to the coordinator's modules;
`disk.py` and `sinks.py` are the systems, `driver.py` plays Spark; `reality.py` reads the model's
world (`tests/model/world.py`) off the disk and judges; `run.py` makes a schedule of a seed and
plays it, `shrink.py` and `search.py` look for failing ones, `planted_bugs.py` has wrong code.
docs/verification.md says what is real and what is played.
"""
