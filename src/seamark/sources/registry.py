"""The schemas of a registry, for a source: asked for through Confluent's client, and waited for.

A schema never changes under its id, so a process asks once for each. A registry that is away, or
busy, says nothing about a record: the reading of it waits, in a task without an end.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from seamark.model.errors import OperationFailedError, PreflightError
from seamark.model.schema_registry import SchemaText, client_module, new_client, redacted

T = TypeVar("T")
PATIENCE_S = 60.0
"""How long the start of a program waits for a registry; the url may be wrong."""
_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 5.0
_SAY_S = 30.0
_DOUBT_S = 2.0
"""An id may be news to the registry's server that is asked: its others had it before."""
_UNKNOWN_S = 60.0
_log = logging.getLogger(__name__)


class Registry:
    """One registry, by the `settings` of Confluent's client; `name` begins each error.

    Raises PreflightError for settings refused by the client, and MissingDependencyError.
    """

    def __init__(self, settings: Mapping[str, Any], name: str) -> None:
        self._settings, self._name = settings, name
        self._where = f"the schema registry at {settings['url']}"
        self._module = client_module(name)
        self._unknown: dict[int, float] = {}
        try:
            self._client = new_client(self._module, settings)
        except (ValueError, TypeError) as error:
            raise PreflightError(
                f"{name}: schema_registry is refused by its client: {redacted(error, settings)}"
            ) from None

    def of_subject(self, subject: str, version: int | None) -> tuple[int, SchemaText]:
        """Return a version of a subject, with its number; None is the latest.

        Raises PreflightError: the registry has not this version, refuses, or does not answer within
        `PATIENCE_S`.
        """

        def ask() -> tuple[int, SchemaText]:
            registered = self._client.get_version(subject, "latest" if version is None else version)
            return int(registered.version), self._whole(registered.schema)

        try:
            return self._patiently(ask, time.monotonic() + PATIENCE_S)
        except self._module.SchemaRegistryError as error:
            what = f"version {version}" if version else "a version"
            raise PreflightError(
                f"{self._name}: {self._where} does not give {what} of {subject} "
                f"({self._said(error)}); give subject= or value_schema="
            ) from None
        except OperationFailedError as error:
            raise PreflightError(str(error)) from None

    def by_id(self, schema_id: int) -> SchemaText | None:
        """Return a schema, None if the registry has none of this id. Waits until it answers.

        Raises OperationFailedError if it refuses to tell.
        """
        if time.monotonic() < self._unknown.get(schema_id, 0.0):
            return None
        doubt_ends = time.monotonic() + _DOUBT_S
        while True:
            try:
                return self._patiently(lambda: self._whole(self._client.get_schema(schema_id)))
            except self._module.SchemaRegistryError as error:
                if error.http_status_code != 404 or error.error_code != 40403:
                    raise OperationFailedError(
                        f"{self._name}: {self._where} does not give the schema of id {schema_id} "
                        f"({self._said(error)}); see schema_registry"
                    ) from None
            if time.monotonic() > doubt_ends:
                self._unknown[schema_id] = time.monotonic() + _UNKNOWN_S
                return None
            time.sleep(_PAUSE_S)

    def _whole(self, schema: Any) -> SchemaText:
        references: dict[str, str] = {}
        for reference in schema.references or ():
            # Old records need it, though it may be deleted by now.
            registered = self._client.get_version(
                reference.subject, reference.version, deleted=True
            )
            of = self._whole(registered.schema)
            references.update(of.references)
            references.setdefault(reference.name, of.text)
        return SchemaText(schema.schema_str, tuple(references.items()))

    def _patiently(self, ask: Callable[[], T], until_s: float = float("inf")) -> T:
        """Return the answer to a question. Raises the client's SchemaRegistryError for a refusal,
        and OperationFailedError without an answer until this moment."""
        pause_s, say_at = _PAUSE_S, time.monotonic()
        while True:
            try:
                return ask()
            except self._module.SchemaRegistryError as error:
                if error.http_status_code < 500 and error.http_status_code not in (408, 429):
                    raise
                why = self._said(error)
            except Exception as error:  # errors of its HTTP library; they differ between versions
                why = f"{type(error).__name__}: {redacted(error, self._settings)}"
            if time.monotonic() > until_s:
                raise OperationFailedError(
                    f"{self._name}: {self._where} does not answer ({why}); see that the url is "
                    "right and reachable from here"
                )
            if time.monotonic() >= say_at:
                _log.warning("%s: %s does not answer (%s): waiting", self._name, self._where, why)
                say_at = time.monotonic() + _SAY_S
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _said(self, error: Any) -> str:
        return f"{error.http_status_code}, {redacted(error.error_message, self._settings)}"
