"""Findings: faults of a job, or of a system it meets, each under a lasting code.

Each code has a section in docs/findings.md: the finding, the reason, an example, the remedy. A
`PreflightError` may carry a finding.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FindingCode(Enum):
    """The codes and their names. A code is never used again for another finding."""

    PG001 = "no-prepared-transactions"
    RD001 = "no-append-only-file"


@dataclass(frozen=True)
class Finding:
    """One finding.

    subject: the sink, source or setting.
    found: the fault, with its value.
    remedy: the caller's next step.
    """

    code: FindingCode
    subject: str
    found: str
    remedy: str

    def __str__(self) -> str:
        what = f"{self.code.name}, {self.code.value}: see docs/findings.md"
        return f"{self.subject}: {self.found}; {self.remedy} ({what})"
