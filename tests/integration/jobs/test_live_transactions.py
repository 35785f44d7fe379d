"""The open transactions of a running job, through its driver's REST interface and the dashboard's
buttons, in a real browser: what a task of an older generation leaves on a real broker and in
PostgreSQL after its successor has settled everything."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from playwright.sync_api import expect

import seamark as sm
from seamark.checkpoint.store import CheckpointStore
from seamark.contracts.sink import WriterContext
from seamark.dev.kafka import LocalKafka
from seamark.files.local import LocalDirectory
from tests.chaos import checker
from tests.chaos.driver import wait_until
from tests.chaos.outputs import KafkaOutput, Output, PostgresOutput
from tests.chaos.scenario import SinksScenario
from tests.dashboard.chromium import PATIENCE_MS, Visit, browser
from tests.dashboard.server import Dashboard
from tests.integration.kafka.sink_kit import commit_offset
from tests.servers.needed import needed
from tests.servers.postgres import PostgresServer

expect.set_options(timeout=PATIENCE_MS)
STARTED = 1
GROUP = "billing"


class Site:
    """A dashboard, as programs ask it: with its token."""

    def __init__(self, dashboard: Dashboard, jid: str) -> None:
        self.dashboard = dashboard
        self.path = f"/jobs/{jid}/transactions"

    def post(self, **asked: Any) -> tuple[int, Any]:
        headers = {
            "Authorization": f"Bearer {self.dashboard.token}",
            "Content-Type": "application/json",
        }
        body = json.dumps(asked).encode()
        answer = self.dashboard.ask(self.path, headers, "POST", body)
        return answer.status, answer.json

    def ask(self, **asked: Any) -> Any:
        """Return an operation's outcome."""
        status, begun = self.post(**asked)
        assert status == 202, begun

        def outcome() -> Any:
            return self.dashboard.ask(f"{self.path}/{begun['request-id']}").json["operation"]

        return wait_until("the sinks' answer", outcome, 60)

    def list(self) -> dict[str, dict[str, Any]]:
        return {one["transaction"]: one for one in self.ask()["transactions"]}


def write_late(output: Output, job_id: str) -> str:
    """Write as a task of the dead driver's generation; return the name of its transaction."""
    sink = getattr(sm, output.maker)(**output.arguments)
    writer = sink.create_writer(WriterContext(job_id, output.uid, STARTED, 900, 0, 0, -1))
    writer.write(
        pa.record_batch({"key": ["late"], "value": ["late"]}, schema=output_schema(output))
    )
    (committable,) = writer.prepare_commit()
    return str(committable.handle)


def output_schema(output: Output) -> pa.Schema:
    kind = pa.binary() if isinstance(output, KafkaOutput) else pa.string()
    return pa.schema([("key", kind), ("value", kind)])


def abort_by_the_buttons(dashboard: Dashboard, site: Site, jid: str, name: str) -> None:
    """Ask the sinks; try to commit the transaction, leave it, then abort it."""
    with contextlib.ExitStack() as stack:
        with needed("a browser"):
            chromium = stack.enter_context(browser())
        tab = Visit(chromium, dashboard.address)
        stack.callback(tab.close)
        tab.open(f"jobs/{jid}/transactions")
        dialog = tab.page.get_by_role("dialog")
        tab.page.get_by_role("button", name="Ask the sinks").click()
        dialog.get_by_role("button", name="Ask them").click()
        dialog.get_by_role("button", name="Close", exact=True).click()
        table = tab.page.get_by_label("Transactions at the sinks' systems")
        row = table.get_by_role("row").filter(has_text=name)
        expect(row).to_contain_text("safe to abort")
        expect(row).to_contain_text(GROUP)
        row.get_by_role("button", name="Commit").click()
        dialog.get_by_role("button", name="Commit it").click()
        expect(dialog).to_contain_text("would show rows twice")
        dialog.get_by_role("button", name="Close", exact=True).click()
        row.get_by_role("button", name="Abort").click()
        expect(dialog).to_contain_text(name)
        dialog.get_by_role("button", name="No, leave it").click()
        assert name in site.list()
        row.get_by_role("button", name="Abort").click()
        dialog.get_by_role("button", name="Abort it").click()
        expect(dialog).to_contain_text("The transaction is aborted.")
        dialog.get_by_role("button", name="Close", exact=True).click()
        expect(row).to_have_count(0)
        assert tab.faults == []


def test_what_an_older_generation_left_is_ended_in_the_running_job(
    kafka: LocalKafka, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        postgres = stack.enter_context(PostgresServer())
        in_kafka = KafkaOutput(kafka.bootstrap_servers)
        in_postgres = PostgresOutput(postgres, "prepared")
        scenario = stack.enter_context(SinksScenario(tmp_path, [in_kafka, in_postgres]))
        scenario.environment["SEAMARK_HOME"] = str(tmp_path / "home")
        # A driver has claimed the job, and died at once.
        records = LocalDirectory(scenario.job_directory)
        store = CheckpointStore(records, LocalDirectory(scenario.job_directory / "spark"))
        store.open(scenario.job)
        assert store.claim_generation(STARTED)
        driver = scenario.start()
        driver.wait_for_epochs(2)

        dashboard = stack.enter_context(Dashboard(scenario.storage, tmp_path / "home"))
        (job,) = dashboard.ask("/jobs/overview").json["jobs"]
        site = Site(dashboard, job["jid"])
        late = {output.uid: write_late(output, job["jid"]) for output in scenario.outputs}
        name, other = late[in_kafka.uid], late[in_postgres.uid]

        found = site.list()
        for uid, transaction in late.items():
            told = found[transaction]
            assert (told["sink"], told["generation"]) == (uid, STARTED)
            assert told["verdict"] == "safe to abort" and told["age"] >= 0
        (held,) = found[name]["held-up"]
        assert held["rows"] > 0, "readers wait"
        topic, _, partition = held["place"].rpartition("-")
        commit_offset(kafka.bootstrap_servers, GROUP, topic, 0, int(partition))
        (held,) = site.list()[name]["held-up"]
        assert GROUP in held["groups"]
        own = [one for handle, one in found.items() if handle not in (name, other)]
        assert {one["verdict"] for one in own} <= {"in use"}

        # Refused, as by the command; malformed; without the token.
        for force, why in ((False, "would show rows twice"), (True, "can only be aborted")):
            refused = site.ask(verb="commit", transactions=[name], force=force)["failure-cause"]
            assert refused["class"] == "UserError" and why in refused["stack-trace"]
        unknown = site.ask(verb="abort", transactions=["nobody's"])["failure-cause"]
        assert "no open transaction" in unknown["stack-trace"]
        assert site.post(verb="abort")[0] == 422
        assert site.post(verb="abort", allLingering=True, force=True)[0] == 422
        assert dashboard.ask(site.path, method="POST", body=b"{}").status == 401

        abort_by_the_buttons(dashboard, site, job["jid"], name)

        # The other one over REST, and the job has not noticed.
        done = site.ask(verb="abort", allLingering=True)["transactions"]
        assert [one["transaction"] for one in done] == [other]
        assert not {name, other} & site.list().keys()
        scenario.finish(driver)
        scenario.require_settled()
        checker.require_none(scenario.check())
        assert all(pair.key != "late" for output in scenario.outputs for pair in output.rows())
