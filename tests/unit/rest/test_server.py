"""How: a taken port, and a free one; environments as of Spark's drivers on Kubernetes and YARN."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import seamark as sm
from seamark.model.errors import PreflightError
from seamark.rest.server import check_certificate, listen, own_address
from tests.servers.login_kafka import make_certificates


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


def test_the_own_address() -> None:
    name, pod = socket.gethostname(), {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert own_address({}) == name
    assert own_address({"NM_HOST": "node7"}) == "node7"
    assert own_address({**pod, "SPARK_DRIVER_BIND_ADDRESS": "10.1.2.3"}) == "10.1.2.3"
    assert own_address({**pod, "POD_IP": "10.1.2.4"}) == "10.1.2.4"
    assert own_address(pod) in (name, socket.gethostbyname(name))


def test_a_certificate_that_cannot_be_served_is_refused(tmp_path: Path) -> None:
    authority, own = tmp_path / "ca.pem", tmp_path / "own.pem"
    make_certificates(authority, {own: "driver"})
    check_certificate(sm.RestConfig(certificate=str(own)))
    for bad in (authority, tmp_path / "none.pem"):  # one without a key, one that is not there
        with pytest.raises(PreflightError, match=r"rest\.certificate '.*pem'"):
            check_certificate(sm.RestConfig(certificate=str(bad)))
