"""How: a taken port, and a free one."""

from __future__ import annotations

import socket

import pytest

import seamark as sm
from seamark.model.errors import PreflightError
from seamark.rest.server import listen


def test_a_port_that_somebody_has_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PreflightError, match=r"cannot listen on 127\.0\.0\.1 port"):
            listen(sm.RestConfig(port=taken.getsockname()[1]))
    with listen(sm.RestConfig(address="localhost")) as listener:
        assert listener.getsockname()[1] > 0
    with pytest.raises(PreflightError, match=r"on no-such-host\.invalid port"):
        listen(sm.RestConfig(address="no-such-host.invalid"))
