"""Hadoop's settings of Google's and Azure's stores, under the names of obstore and delta-rs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from seamark.files import HadoopSettings
from seamark.files.cloud_options import CloudOptions
from seamark.model.errors import ConfigurationError
from seamark.sinks.delta.store import delta_options
from seamark.sinks.files import FileSink

HOST = "account.dfs.core.windows.net"
AZURE = f"abfss://box@{HOST}/lake/orders"


def options(uri: str, **settings: Any) -> dict[str, str]:
    return dict(CloudOptions.of(uri, HadoopSettings(settings)).options)


def test_an_accounts_settings_go_before_those_of_all() -> None:
    given = {f"fs.azure.account.key.{HOST}": "own", "fs.azure.account.key": "all"}
    found = CloudOptions.of(AZURE, HadoopSettings(given))
    assert (found.scheme, found.bucket) == ("abfss", "box")
    assert dict(found.options) == {
        "azure_storage_account_name": "account",
        "azure_storage_account_key": "own",
    }
    assert "own" not in repr(found)


def test_a_service_principal_of_azure() -> None:
    oauth = "fs.azure.account.oauth2.client"
    found = options(
        AZURE,
        **{
            "fs.azure.account.auth.type": "OAuth", f"{oauth}.id": "me", f"{oauth}.secret": "s",
            f"{oauth}.endpoint": "https://login.microsoftonline.com/our-tenant/oauth2/token",
        },
    )  # fmt: skip
    assert found == {
        "azure_storage_account_name": "account",
        "azure_storage_client_id": "me",
        "azure_storage_client_secret": "s",
        "azure_storage_tenant_id": "our-tenant",
    }


def test_google() -> None:
    keyfile = "fs.gs.auth.service.account.json.keyfile"
    assert options("gs://b/x", **{keyfile: "/k.json"}) == {"google_service_account": "/k.json"}
    given = {
        "fs.gs.auth.type": "UNAUTHENTICATED",
        "fs.gs.storage.root.url": "http://127.0.0.1:1/",
    }
    account = json.loads(options("gs://b/x", **given)["google_service_account_key"])
    assert account["gcs_base_url"] == "http://127.0.0.1:1" and account["disable_oauth"]
    assert CloudOptions.of("gs://b/x", HadoopSettings(given)).is_plain


@pytest.mark.parametrize(
    ("uri", "name"), [("gs://b/x", "fs.gs.auth.type"), (AZURE, "fs.azure.account.auth.type")]
)
def test_a_login_of_hadoops_alone_is_refused(uri: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is 'Custom', which Hadoop's .* allowed"):
        options(uri, **{name: "Custom"})


def test_delta_rs_has_deadlines_there() -> None:
    found = delta_options("gs://b/x", HadoopSettings())
    assert found is not None
    assert found["timeout"] == found["retry_timeout"] == "20s"
    assert "allow_http" not in found


@pytest.mark.parametrize("uri", ["gs://bucket/clicks", AZURE])
def test_files_are_refused_there(uri: str) -> None:
    with pytest.raises(ConfigurationError, match=r"FileSink: path .* a DeltaSink there"):
        FileSink(uri)
