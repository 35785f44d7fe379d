"""Prometheus's own `promtool`: the machine's, or out of Debian's package ``prometheus``.

The package is unpacked and not installed, so no server starts. Where neither is to be had (no
Debian, or not root), `find_promtool` raises `NotToBeHadError` (`needed.py`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.servers.needed import NotToBeHadError


def find_promtool(directory: Path) -> Path:
    """Return the program; unpacked files go into `directory`."""
    if found := shutil.which("promtool"):
        return Path(found)
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise NotToBeHadError("install Debian's package prometheus, or run the tests as root")
    for command in (
        ["apt-get", "update", "-q"],
        ["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", "prometheus"],
        ["sh", "-c", "dpkg-deb -x prometheus_*.deb ."],
    ):
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotToBeHadError(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")
    return directory / "usr/bin/promtool"
