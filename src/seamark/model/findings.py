"""Findings: what is wrong with a job, or with a system that it meets, under a code that stays.

Each code has a section in docs/findings.md: what, why, an example, the remedy. A `PreflightError`
may carry a finding.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FindingCode(Enum):
    """The codes and their names. A code is never given to something else."""

    PG001 = "no-prepared-transactions"
    RD001 = "no-append-only-file"


@dataclass(frozen=True)
class Finding:
    """One finding. subject: the sink, source or setting; found: what was found, with its value;
    remedy: what to do."""

    code: FindingCode
    subject: str
    found: str
    remedy: str

    def __str__(self) -> str:
        what = f"{self.code.name}, {self.code.value}: see docs/findings.md"
        return f"{self.subject}: {self.found}; {self.remedy} ({what})"
