"""How: a bucket of requests, by a clock moved by the test."""

from __future__ import annotations

from seamark.rest.server import BURST_S, CLIENTS, RequestRates


def test_a_client_has_a_burst_and_then_its_rate() -> None:
    now = [100.0]
    rates = RequestRates(10, clock=lambda: now[0])
    burst = int(10 * BURST_S)
    assert [rates.wait_s("a") for _ in range(burst)] == [0.0] * burst
    assert round(rates.wait_s("a"), 6) == 0.1
    assert rates.wait_s("b") == 0.0
    now[0] += 0.25
    assert [rates.wait_s("a") > 0 for _ in range(3)] == [False, False, True]
    now[0] += 3600
    assert [rates.wait_s("a") > 0 for _ in range(burst + 1)] == [False] * burst + [True]


def test_many_clients_take_no_more_memory() -> None:
    rates = RequestRates(1, clock=lambda: 0.0)
    for number in range(3 * CLIENTS):
        rates.wait_s(str(number))
    assert len(rates._buckets) == CLIENTS
