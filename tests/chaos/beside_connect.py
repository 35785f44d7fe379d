"""A program beside a Spark Connect server of its own, on a free port: SPARK_REMOTE names it.

``python tests/chaos/beside_connect.py COMMAND…`` ends as the command does, and leaves the server to
whoever ends the tree. A command that was killed is started anew, at the same server.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from seamark.dev.java_server import free_ports


def main() -> int:
    (port,) = free_ports(1)
    server = subprocess.Popen(
        [
            str(Path(sys.executable).with_name("spark-submit")),
            "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
            "--master", "local[2]",
            "--conf", f"spark.connect.grpc.binding.port={port}",
            "--conf", "spark.ui.enabled=false",
            "--conf", "spark.log.level=WARN",
            "--conf", "spark.sql.shuffle.partitions=2",
            "spark-internal",
        ],
    )  # fmt: skip
    while server.poll() is None:
        with socket.socket() as line:
            if line.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    at_server = {**os.environ, "SPARK_REMOTE": f"sc://127.0.0.1:{port}"}
    while (code := subprocess.call(sys.argv[1:], env=at_server)) == -signal.SIGKILL:
        pass
    return code


if __name__ == "__main__":
    sys.exit(main())
