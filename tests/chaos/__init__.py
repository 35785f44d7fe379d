"""Kills of the real job, and the rows its readers then see.

`app_*.py` are jobs as users write them; `scenario.py` is one continuous run of one app. What is
also needed by `seamark verify` stands in `seamark.verify`: `driver.py`, `workload.py` and
`checker.py` give it the tests' words. `outputs.py` has the sinks of `app_sinks.py`, `matrix.py` the
jobs made of them. `tests/integration/jobs` holds the scenarios of ``make test-all``,
`test_matrix.py` those of ``make chaos``, `test_verify.py` a run of `seamark verify`.
"""
