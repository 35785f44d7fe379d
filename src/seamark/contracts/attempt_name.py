"""The unique name of one attempt of one task, for transactions, stages and files.

``g<generation>-e<epoch>-p<partition>-a<attempt>-<token>`` is its one form, in a table's comment, a
key or a file's name. The owner stands in front: job and sink, as far as the system has room
(`plain`, `digest`). No other attempt gets the same name, and this attempt gets it only once.
"""

import hashlib
import re
import uuid
from dataclasses import dataclass
from typing import TypeVar

from seamark.contracts.sink import SinkContext, WriterContext

_PLAIN = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_FORM = re.compile(
    rf"(?:(?P<owner>{_PLAIN}(?:[/:]{_PLAIN})*)[/:])?g(\d+)(?P<sep>[-:])e(\d+)(?P=sep)p(\d+)(?P=sep)"
    r"a(\d+)(?P=sep)([xs]?[0-9a-f]+)",
    re.ASCII,
)
N = TypeVar("N", bound="AttemptName")


@dataclass(frozen=True)
class AttemptName:
    """The name of one attempt, in its parts.

    `owner` is job and sink, or "" if the name's place already tells them. Its parts are separated
    by ``/`` or ``:``, and none leads out of a directory. `token` makes the name unique.
    """

    owner: str
    generation: int
    epoch: int
    partition: int
    attempt: int
    token: str

    @classmethod
    def of(cls: type[N], context: WriterContext, owner: str = "", token: str = "") -> N:
        """Return a new name for this attempt; with a random token if none is given."""
        at = context
        numbers = (at.generation, at.epoch, at.partition_id, at.attempt)
        return cls(owner, *numbers, token or random_token())

    @classmethod
    def parse(cls: type[N], text: str) -> N | None:
        """Parse `text` as a name with its owner; None for any other text."""
        match = _FORM.fullmatch(text)
        if match is None:
            return None
        _, generation, _, epoch, partition, attempt, token = match.groups()
        return cls(
            match["owner"] or "", int(generation), int(epoch), int(partition), int(attempt), token
        )

    def encoded(self, separator: str = "-") -> str:
        """Return the name without its owner."""
        parts = (f"g{self.generation}", f"e{self.epoch}", f"p{self.partition}", f"a{self.attempt}")
        return separator.join((*parts, self.token))

    def __str__(self) -> str:
        return f"{self.owner}/{self.encoded()}" if self.owner else self.encoded()


def random_token(digits: int = 32) -> str:
    """Return random hex digits, unique to this call."""
    return uuid.uuid4().hex[:digits]


def owner_path(at: SinkContext | WriterContext) -> str:
    """Return the owner's name of a job's sink as a path of two directories."""
    return f"{plain(at.job_id)}/{plain(at.sink_uid)}"


def plain(text: str, longest: int = 64, digits: int = 40) -> str:
    """Return a job id or sink uid unchanged if a name can hold it, else a digest of it."""
    if len(text) <= longest and re.fullmatch(_PLAIN, text):
        return text
    return "sha256-" + digest(text, digits)


def digest(text: str, digits: int) -> str:
    """Return the first hex digits of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:digits]
