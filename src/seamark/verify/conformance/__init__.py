"""The conformance suites for sinks: they test on the real system the properties a job relies on.

Subclass `SinkConformance` in a test file, together with the other classes that fit the system. Give
it one fixture, `under`, returning a `SinkUnderTest`, and run it with pytest
(``pip install 'pyspark-seamark[verify]'``). A job may trust the sink once every test passes.

For an idempotent sink, writing by key before the decision, use `IdempotentConformance` with the
fixture `keyed`, returning a `KeyedSinkUnderTest`. For a `sm.WriteAheadSink` use
`WriteAheadConformance`. For every sink: `ValuesConformance` with the fixture `odd`, returning a
`ValuesUnderTest`, sends odd values and columns with odd names through it.

`suite.py`, `further_suites.py`, `outages.py`, `idempotent.py`, `odd_values.py` and `write_ahead.py`
hold the tests, `steps.py` and `proxy.py` their parts; docs/write-a-sink.md walks through a whole
sink. Nothing here needs Spark.
"""

import pytest

# Before the import: only then does pytest show the values of a failed assertion.
for _module in ("suite", "further_suites", "idempotent", "odd_values", "outages", "write_ahead"):
    pytest.register_assert_rewrite(f"{__name__}.{_module}")

from seamark.verify.conformance.further_suites import DeadLetterConformance as DeadLetterConformance
from seamark.verify.conformance.further_suites import ExpiryConformance as ExpiryConformance
from seamark.verify.conformance.further_suites import ForgettingConformance as ForgettingConformance
from seamark.verify.conformance.further_suites import LineConformance as LineConformance
from seamark.verify.conformance.further_suites import RefusalConformance as RefusalConformance
from seamark.verify.conformance.further_suites import ServerConformance as ServerConformance
from seamark.verify.conformance.idempotent import IdempotentConformance as IdempotentConformance
from seamark.verify.conformance.idempotent import KeyedServerConformance as KeyedServerConformance
from seamark.verify.conformance.idempotent import KeyedSinkUnderTest as KeyedSinkUnderTest
from seamark.verify.conformance.odd_values import ODD_NAMES as ODD_NAMES
from seamark.verify.conformance.odd_values import ODD_VALUES as ODD_VALUES
from seamark.verify.conformance.odd_values import ValuesConformance as ValuesConformance
from seamark.verify.conformance.odd_values import ValuesUnderTest as ValuesUnderTest
from seamark.verify.conformance.outages import OutageConformance as OutageConformance
from seamark.verify.conformance.steps import LineUnderTest as LineUnderTest
from seamark.verify.conformance.steps import ServerUnderTest as ServerUnderTest
from seamark.verify.conformance.steps import SinkUnderTest as SinkUnderTest
from seamark.verify.conformance.suite import SinkConformance as SinkConformance
from seamark.verify.conformance.write_ahead import WriteAheadConformance as WriteAheadConformance
from seamark.verify.proxy import CuttingProxy as CuttingProxy
