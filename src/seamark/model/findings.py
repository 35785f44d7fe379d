"""Findings: faults of a job, or of a system it meets, each under a lasting code.

Each code has a section in docs/findings.md: the finding, the reason, an example, the remedy.
`guarantees/rules.py` finds faults of a declaration, the `preflight.py` of each sink and
`sources/kafka_admin.py` faults of real systems. A `UserError` may carry a finding.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Severity(Enum):
    """The weight of a finding, heaviest first."""

    ERROR = "error"
    """`Job.run` refuses the job."""
    WARNING = "warning"
    """The job runs; rows can be lost, doubled or unseen under the stated condition."""
    NOTE = "note"
    """Nobody but the reader can judge it; `explain` shows it."""


class FindingCode(Enum):
    """The codes, their names and usual severities. A code is never used for another finding."""

    SC001 = "source-not-replayable", Severity.WARNING
    SC002 = "source-reads-uncommitted", Severity.WARNING
    SC003 = "source-skips-lost-rows", Severity.WARNING
    SC004 = "source-retention-too-short", Severity.WARNING
    SC005 = "spark-connect", Severity.ERROR
    SC006 = "source-option-unknown", Severity.WARNING
    ST001 = "operator-without-uid", Severity.WARNING
    ST002 = "replay-changes-rows", Severity.WARNING
    ST003 = "python-function-unproved", Severity.NOTE
    CP001 = "checkpoints-ephemeral", Severity.WARNING
    CP002 = "checkpoints-on-one-machine", Severity.WARNING
    CP003 = "storage-not-atomic", Severity.ERROR
    CP004 = "too-few-retained", Severity.WARNING
    CP005 = "mode-below-sinks", Severity.WARNING
    CP006 = "storage-not-tested", Severity.WARNING
    SK001 = "sink-repeats-rows", Severity.WARNING
    SK002 = "target-shared", Severity.WARNING
    SK003 = "target-read-uncommitted", Severity.WARNING
    SK004 = "sink-refuses-job", Severity.ERROR
    SK005 = "sink-not-asked", Severity.NOTE
    SK006 = "output-mode-not-taken", Severity.ERROR
    SK007 = "sink-feeds-its-source", Severity.WARNING
    SK008 = "sink-in-checkpoint", Severity.ERROR
    KF001 = "no-transactional-prefix", Severity.ERROR
    KF002 = "prefix-shared", Severity.WARNING
    KF003 = "prefix-too-long", Severity.WARNING
    KF004 = "transaction-timeout-too-short", Severity.ERROR
    KF005 = "transaction-timeout-above-broker", Severity.ERROR
    KF006 = "topic-on-one-broker", Severity.WARNING
    KF007 = "too-few-in-sync-replicas", Severity.WARNING
    SV001 = "server-unreachable", Severity.ERROR
    SV002 = "server-unfit", Severity.ERROR
    SV003 = "not-authorised", Severity.ERROR
    SV004 = "target-missing", Severity.ERROR
    SV005 = "target-unfit", Severity.ERROR
    SV006 = "confirmed-rows-may-be-lost", Severity.WARNING
    SV007 = "settings-refused", Severity.ERROR
    SV008 = "quicker-mode-possible", Severity.NOTE
    SV009 = "rows-refused-late", Severity.NOTE
    PG001 = "no-prepared-transactions", Severity.ERROR
    PG002 = "too-few-prepared-transactions", Severity.WARNING
    PG003 = "stages-published", Severity.WARNING
    PG004 = "too-few-locks", Severity.WARNING
    RD001 = "no-append-only-file", Severity.ERROR

    def __init__(self, title: str, severity: Severity) -> None:
        self.title = title
        self.severity = severity


@dataclass(frozen=True)
class Finding:
    """One finding.

    subject: the sink, source or setting.
    found: the fault, with its value; never a secret.
    remedy: the caller's next step.
    severity: None for the code's own.
    """

    code: FindingCode
    subject: str
    found: str
    remedy: str
    severity: Severity | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "severity", self.weight)

    @property
    def weight(self) -> Severity:
        """The severity of this finding: its own, or its code's."""
        return self.severity or self.code.severity

    def __str__(self) -> str:
        what = f"{self.code.name}, {self.code.title}: see docs/findings.md"
        return f"{self.subject}: {self.found}; {self.remedy} ({what})"

    def to_json(self) -> dict[str, str]:
        """Return it in the fields of ``/jobs/:id/guarantees``."""
        return {
            "code": self.code.name,
            "name": self.code.title,
            "severity": self.weight.value,
            "subject": self.subject,
            "found": self.found,
            "remedy": self.remedy,
        }

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "Finding":
        """Read `to_json`; raises KeyError or ValueError for an unknown code or form."""
        texts = {name: str(fields[name]) for name in ("subject", "found", "remedy")}
        return Finding(FindingCode[fields["code"]], **texts, severity=Severity(fields["severity"]))


def heaviest_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings without repetitions: errors, then warnings, then notes; each kind in the
    order given."""
    order = list(Severity)
    return tuple(sorted(dict.fromkeys(findings), key=lambda one: order.index(one.weight)))


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that stop a job."""
    return [one for one in findings if one.weight is Severity.ERROR]
