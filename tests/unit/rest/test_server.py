"""How: a port that somebody has, and one that nobody has."""

from __future__ import annotations

import socket

import pytest

import tidemark as tm
from tidemark.model.errors import PreflightError
from tidemark.rest.server import listen


def test_a_port_that_somebody_has_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PreflightError, match=r"cannot listen on 127\.0\.0\.1 port"):
            listen(tm.RestConfig(port=taken.getsockname()[1]))
    with listen(tm.RestConfig(address="localhost")) as listener:
        assert listener.getsockname()[1] > 0
    with pytest.raises(PreflightError, match=r"on no-such-host\.invalid port"):
        listen(tm.RestConfig(address="no-such-host.invalid"))
