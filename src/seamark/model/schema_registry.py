"""A schema registry as sinks and sources are told of it: the settings of Confluent's client, the
head of each value in Confluent's wire format, and the text of a schema.

`sinks/kafka/schema_registry.py` registers, `sources/registry.py` reads.
"""

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seamark.model.errors import ConfigurationError
from seamark.model.packages import load_driver
from seamark.model.redaction import redact

HEAD = struct.Struct(">bI")
"""In front of each value: a zero byte, then its schema's id."""
_DEFAULTS = {"timeout": 10, "max.retries": 1}
_SECRET = re.compile(r"user\.info|password|secret|token|\.key\.pem")


@dataclass(frozen=True)
class SchemaText:
    """A schema as a registry has it, with the name and text of each schema that it refers to, those
    needed by others first."""

    text: str
    references: tuple[tuple[str, str], ...] = ()


def checked(settings: object, owner: str, value_format: str) -> dict[str, Any]:
    """Return a copy of the settings of Confluent's client; raises ConfigurationError, which begins
    with the `owner`."""
    url = settings.get("url") if isinstance(settings, Mapping) else None
    if not isinstance(settings, Mapping) or not isinstance(url, str) or "://" not in url:
        raise ConfigurationError(
            f'{owner}: value_format="{value_format}" needs '
            'schema_registry={"url": "http://host:8081"}, and beside the url what else its client '
            f"is to be told; found {type(url).__name__} for the url"
        )
    if "@" in url:  # anywhere: a password may have commas and slashes
        raise ConfigurationError(
            f"{owner}: the url of schema_registry holds a user or a password, which logs could "
            'show; give them as {"basic.auth.user.info": "user:password"} beside the url'
        )
    return dict(settings)


def shown(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings with their secrets masked."""
    return {n: "***" if _SECRET.search(n) else redact(str(value)) for n, value in settings.items()}


def redacted(text: object, settings: Mapping[str, Any]) -> str:
    """Return a library's error without the settings' secrets."""
    shown = str(text)
    for name, value in settings.items():
        if _SECRET.search(name):  # in "user:password" the password alone is secret too
            for secret in filter(None, (str(value), str(value).partition(":")[2])):
                shown = shown.replace(secret, "***")
    return redact(shown)


def no_column(owner: str, path: str, why: str) -> ConfigurationError:
    """Return the error for a field of a reader's schema; its `path` is "" for the whole value."""
    where = f"the field {path!r}" if path else "the value"
    return ConfigurationError(
        f"{owner}: {where} of the reader's schema {why}; give value_schema= a schema without it: "
        "fields that it has not are left out"
    )


def no_schema(owner: str, kind: str, error: Exception, schema: SchemaText) -> ConfigurationError:
    """Return the error for the text of a reader's schema that is none of this kind."""
    why = f"{type(error).__name__}: {error}"
    return ConfigurationError(f"{owner}: the reader's schema is no {kind} ({why}): {schema.text}")


def client_module(owner: str) -> Any:
    """Return Confluent's module of the registry; raises MissingDependencyError."""
    needs = f"{owner}: the client of the schema registry is not installed"
    return load_driver("confluent_kafka.schema_registry", needs, "avro")


def new_client(module: Any, settings: Mapping[str, Any]) -> Any:
    """Return a client; raises ValueError or TypeError for settings that it does not know."""
    return module.SchemaRegistryClient({**_DEFAULTS, **settings})
