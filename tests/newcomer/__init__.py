"""A stranger's first hour, as typed: an empty directory, an empty environment, and the wheel.

`conftest.py` makes the environment. Each step prints its seconds (pytest -s, or -rP).
"""
