"""The schema registry: registers a value's schema once, before any row is written.

Uses Confluent's own client. Each value carries the schema's id for its consumers, in Confluent's
wire format (`framed`).
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from seamark.model.errors import PreflightError, SeamarkError
from seamark.model.protobuf_schema import message_of
from seamark.model.schema_registry import SchemaText, client_module, new_client, redacted


def register(text: str, kind: str, subject: str, settings: Mapping[str, Any], sink: str) -> int:
    """Return the id of a schema of this `kind` under `subject`, registered if the registry lacks
    it.

    Raises PreflightError; `sink` names the sink in it.
    """
    module = client_module(sink)
    where = f"the schema registry at {settings['url']}"
    try:
        with new_client(module, settings) as client:
            if kind == "PROTOBUF":
                _check_numbers(text, subject, client, module, sink)
            return int(client.register_schema(subject, module.Schema(text, kind)))
    except SeamarkError:
        raise
    except module.SchemaRegistryError as error:
        remedy = {
            401: "give basic.auth.user.info in schema_registry",
            403: f"grant this user to register schemas of {subject}",
            409: "the columns have changed in a way that old readers or writers do not bear: "
            + ("give value_schema= a schema" if kind == "AVRO" else "select columns")
            + " compatible with it, or change the subject's compatibility",
            422: "mend value_schema" if kind == "AVRO" else "rename the columns that it names",
        }.get(error.http_status_code, "see the registry's log")
        why = f"{error.http_status_code}, {redacted(error.error_message, settings)}"
        raise PreflightError(
            f"{sink}: {where} refuses the schema of {subject} ({why}); {remedy}"
        ) from None
    except (ValueError, TypeError) as error:
        raise PreflightError(
            f"{sink}: schema_registry is refused by its client: {redacted(error, settings)}"
        ) from None
    except Exception as error:  # errors of its HTTP library; they differ between versions
        raise PreflightError(
            f"{sink}: {where} does not answer ({type(error).__name__}: "
            f"{redacted(error, settings)}); see that the url is right and reachable from here"
        ) from None


def _check_numbers(text: str, subject: str, client: Any, module: Any, sink: str) -> None:
    """Raise PreflightError if a version of the subject has a field's number for another column: a
    reader would take one for the other, which no registry's compatibility minds."""
    try:
        new = message_of(SchemaText(text))
    except ValueError as error:
        raise PreflightError(
            f"{sink}: the columns make no Protobuf schema ({error}); rename them: {text}"
        ) from None
    try:
        versions = client.get_versions(subject)
    except module.SchemaRegistryError as error:
        if error.http_status_code != 404:
            raise
        versions = []
    for version in versions:
        registered = client.get_version(subject, version).schema
        try:
            why = _moved(message_of(SchemaText(registered.schema_str)), new, "")
        except ValueError as error:
            why = f"it cannot be compared with these columns ({error})"
        if why:
            raise PreflightError(
                f"{sink}: version {version} of {subject} does not fit: {why}; select the columns "
                "in the order in which they first came, new ones last, or write to another topic"
            )


def _moved(old: Any, new: Any, path: str) -> str:
    """Return how a column's number differs between two schemas, "" if none does."""
    for field in new.fields:
        same = old.fields_by_name.get(field.name)
        for known in filter(None, (old.fields_by_number.get(field.number), same)):
            if (known.name, known.number) != (field.name, field.number):
                return (
                    f"the column {path + field.name!r} would be field {field.number}, and there "
                    f"{path + known.name!r} is field {known.number}"
                )
        if same is None or same.message_type is None or field.message_type is None:
            continue
        if why := _moved(same.message_type, field.message_type, f"{path}{field.name}."):
            return why
    return ""


def framed(values: pa.Array, head: bytes) -> pa.Array:
    """Return a batch's values, each with its head in front."""
    if not (pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)):
        values = values.cast(pa.binary())
    front = pa.scalar(head, values.type)
    return pc.binary_join_element_wise(front, values, pa.scalar(b"", values.type))
