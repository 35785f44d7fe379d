"""``format("seamark")`` under schedules: ``make simulate ARGS=--data-source``.

Planner, tasks and committer are real, each in a worker with a memory of its own (`spark.py`).
`world.py` judges, and is the operator who restores, deletes and moves directories. `run.py` makes a
schedule of a seed. Machine, disk and sinks are those of the coordinator's simulation.
"""
