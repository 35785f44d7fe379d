"""`SocketSource`: lines of text from a TCP server, for trying things out.

This is the configuration; `spark/socket_lines.py` reads the lines.
"""

import re
from dataclasses import dataclass
from typing import ClassVar

from seamark.api.checks import whole_number
from seamark.contracts.source import StreamReader
from seamark.model.errors import ConfigurationError

_HOST = re.compile(r"[^\s/:]+|[^\s/]*:[^\s/]*:[^\s/]*")
"""Only an address of IPv6 has colons, at least two."""


@dataclass(frozen=True)
class SocketSource:
    """Read lines of UTF-8 text from a TCP server, as the column ``value``.

    host, port: the server's address; the driver's machine connects to it. When the server closes
        the connection the run fails, after the epoch with its last line; a restart strategy
        connects again.

    Not replayable: a job with this source is at-most-once, whatever its sinks. A failed run loses
    the lines of an epoch planned but not decided, and the log has their number. It also loses
    received lines of no epoch yet; nobody counts those. Raises ConfigurationError.
    """

    host: str
    port: int
    replayable: ClassVar[bool] = False
    """The server keeps none of its sent lines."""
    bounded: ClassVar[bool] = False
    """It goes on until the job is stopped."""

    def __post_init__(self) -> None:
        if not isinstance(self.host, str) or not _HOST.fullmatch(self.host):
            raise ConfigurationError(
                f"SocketSource: host is {self.host!r}; give a name or an address, and no more"
            )
        whole_number(self.port, f"SocketSource {self.host}: port", least=1, most=65535)

    def describe(self) -> str:
        """Return the address."""
        return f"socket {self.host}:{self.port}"

    def reader(self) -> StreamReader:
        """Return the reader of the data source in `spark/socket_lines.py`."""
        return StreamReader("seamark-socket", {"host": self.host, "port": str(self.port)})
