"""Kills of the real job, and the rows its readers then see.

`app_*.py` are jobs as users write them; `driver.py` starts and kills them; `workload.py` feeds and
reads the real systems; `scenario.py` is one continuous run of one app; `checker.py` judges it.
`outputs.py` has the sinks of `app_sinks.py`, `matrix.py` the jobs made of them.
`tests/integration/jobs` holds the scenarios of ``make test-all``, `test_matrix.py` those of ``make
chaos``, `soak.py` is ``make soak``.
"""
