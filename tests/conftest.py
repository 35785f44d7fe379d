"""What every test needs: Spark's Python workers are this Python, and Spark stays on loopback.

The broker's fixtures are in `integration/conftest.py`.
"""

from __future__ import annotations

import os
import sys

# Set for the whole process, so that programs which tests start inherit them.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
