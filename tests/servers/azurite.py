"""A server with the interface of Azure's blobs on this machine: Azurite, out of npm.

Its blobs lie in its memory: after `kill` they are gone. On a disk it would lose seconds of them.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from email.utils import formatdate
from pathlib import Path

from seamark.dev.server_process import ServerProcess
from seamark.spark.jars import cache_directory
from tests.servers.front import StoreFront
from tests.servers.needed import NotToBeHadError

VERSION = "3.35.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's own account, with the key that its documentation has."""
_API = "2021-08-06"


class AzuriteServer(ServerProcess):
    """A server with one container."""

    bucket = "seamark"
    host = f"{ACCOUNT}.dfs.core.windows.net"

    def __init__(self) -> None:
        self._program = _program()
        super().__init__(Path(tempfile.mkdtemp(prefix="sm-azurite-")), {})
        self.front = StoreFront(self.port)
        """Another address, for listings that begin at a name too."""

    def uri(self, path: str) -> str:
        """Return the URI of a path in the container."""
        return f"abfss://{self.bucket}@{self.host}/{path}"

    def row_settings(self, endpoint: str = "") -> dict[str, str]:
        """Return the settings for Seamark's own clients.

        endpoint: another address in front of this server.
        """
        return {
            f"spark.hadoop.fs.azure.account.key.{self.host}": KEY,
            "spark.hadoop.fs.azure.abfs.endpoint": f"{endpoint or self.front.endpoint}/{ACCOUNT}",
        }

    @property
    def _endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __exit__(self, *error: object) -> None:
        self.front.__exit__()
        super().__exit__(*error)

    def _first_start(self) -> None:
        super()._first_start()
        self.front.__enter__()
        date = formatdate(usegmt=True)
        signed = (
            f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{_API}\n"
            f"/{ACCOUNT}/{ACCOUNT}/{self.bucket}\nrestype:container"
        )
        signature = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
        headers = {
            "x-ms-date": date, "x-ms-version": _API, "Content-Length": "0",
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}",
        }  # fmt: skip
        url = f"{self._endpoint}/{ACCOUNT}/{self.bucket}?restype=container"
        request = urllib.request.Request(url, method="PUT", headers=headers)
        urllib.request.urlopen(request, timeout=10).close()

    def _command(self) -> list[object]:
        return [
            "node", self._program, "--blobHost", "127.0.0.1", "--blobPort", self.port,
            "--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry",
        ]  # fmt: skip

    def _ask(self) -> None:
        try:
            urllib.request.urlopen(f"{self._endpoint}/{ACCOUNT}", timeout=10).close()
        except urllib.error.HTTPError as error:
            error.close()


def _program() -> Path:
    """Return the server's program; fetched at the first call (128 MB)."""
    directory = cache_directory("azurite") / VERSION
    program = directory / "node_modules/azurite/dist/src/blob/main.js"
    npm = shutil.which("npm")
    if shutil.which("node") is None or npm is None:
        raise NotToBeHadError("no node and npm on this machine (apt-get install npm)")
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "whole").exists():
            done = subprocess.run(
                [npm, "install", "--prefix", directory, "--no-audit", f"azurite@{VERSION}"],
                capture_output=True, text=True, timeout=600, check=False,
            )  # fmt: skip
            if done.returncode:
                raise NotToBeHadError(f"npm install azurite: {done.stderr[-300:]}")
            (directory / "whole").touch()
    return program
