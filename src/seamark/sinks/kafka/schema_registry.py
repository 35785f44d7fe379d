"""The schema registry: registers a value's Avro schema once, before any row is written.

Uses Confluent's own client. Each value carries the schema's id for its consumers, in Confluent's
wire format: a zero byte, then the id in four bytes, then the Avro bytes (`framed`).
"""

import re
import struct
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from seamark.model.errors import ConfigurationError, MissingDependencyError, PreflightError
from seamark.model.packages import install_command
from seamark.sinks.kafka import options
from seamark.sinks.kafka.avro_schema import AvroSchema

_DEFAULTS = {"timeout": 10, "max.retries": 1}
_FRAME = ">bI"
FRAME_BYTES = struct.calcsize(_FRAME)
"""The bytes put by `framed` in front of each value."""
_SECRET = re.compile(r"user\.info|password|secret|token|\.key\.pem")


def checked(settings: object, sink: str) -> dict[str, Any]:
    """Return a copy of the settings of Confluent's client; raises ConfigurationError."""
    url = settings.get("url") if isinstance(settings, Mapping) else None
    if not isinstance(settings, Mapping) or not isinstance(url, str) or "://" not in url:
        raise ConfigurationError(
            f'{sink}: value_format="avro" needs schema_registry={{"url": "http://host:8081"}}, and '
            f"beside the url what else Confluent's client is to be told; found {type(url).__name__}"
            " for the url"
        )
    if any("@" in urlsplit(one).netloc for one in url.split(",")):
        raise ConfigurationError(
            f"{sink}: the url of schema_registry holds a user or a password, which logs could "
            'show; give them as {"basic.auth.user.info": "user:password"} beside the url'
        )
    return dict(settings)


def shown(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings with their secrets masked."""
    return {n: "***" if _SECRET.search(n) else str(value) for n, value in settings.items()}


def register(schema: AvroSchema, subject: str, settings: Mapping[str, Any], sink: str) -> int:
    """Return the id of `schema` under `subject`, registered if the registry lacks it.

    Raises PreflightError; `sink` names the sink in it.
    """
    try:
        from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
        from confluent_kafka.schema_registry.error import SchemaRegistryError
    except ImportError as error:
        raise MissingDependencyError(
            f'{sink}: value_format="avro" needs the client of the schema registry on the driver: '
            f"{install_command('avro')}"
        ) from error
    where = f"the schema registry at {settings['url']}"
    try:
        with SchemaRegistryClient({**_DEFAULTS, **settings}) as client:
            return int(client.register_schema(subject, Schema(schema.text, "AVRO")))
    except SchemaRegistryError as error:
        remedy = {
            401: "give basic.auth.user.info in schema_registry",
            403: f"grant this user to register schemas of {subject}",
            409: "the columns have changed in a way that old readers or writers do not bear: give "
            "value_schema= a schema that is compatible, or change the subject's compatibility",
            422: "mend value_schema",
        }.get(error.http_status_code, "see the registry's log")
        why = f"{error.http_status_code}, {_redacted(error.error_message, settings)}"
        raise PreflightError(
            f"{sink}: {where} refuses the schema of {subject} ({why}); {remedy}"
        ) from None
    except (ValueError, TypeError) as error:
        raise PreflightError(
            f"{sink}: schema_registry is refused by its client: {_redacted(error, settings)}"
        ) from None
    except Exception as error:  # errors of its HTTP library; they differ between versions
        raise PreflightError(
            f"{sink}: {where} does not answer ({type(error).__name__}: "
            f"{_redacted(error, settings)}); see that the url is right and reachable from here"
        ) from None


def framed(values: pa.Array, schema_id: int) -> pa.Array:
    """Return a batch's Avro values, each with the schema's id in front."""
    if not (pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)):
        values = values.cast(pa.binary())
    header = pa.scalar(struct.pack(_FRAME, 0, schema_id), values.type)
    return pc.binary_join_element_wise(header, values, pa.scalar(b"", values.type))


def _redacted(text: object, settings: Mapping[str, Any]) -> str:
    secrets = {f"secret {n}": str(v) for n, v in settings.items() if _SECRET.search(n)}
    for value in list(secrets.values()):  # in "user:password" the password alone is secret too
        secrets[f"secret {len(secrets)}"] = value.partition(":")[2]
    return options.redacted(str(text), secrets)
