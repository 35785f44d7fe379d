"""The access to Google's and Azure's stores, from the settings of Hadoop's connectors.

Both clients of these stores, obstore and delta-rs, stand on one library and take the options by the
same names.
"""

import re
from dataclasses import dataclass, field

from seamark.files.settings import HadoopSettings
from seamark.model.errors import ConfigurationError

AZURE_SCHEMES = ("abfs", "abfss")
CLOUD_SCHEMES = ("gs", *AZURE_SCHEMES)
TIMEOUT_S = 20.0
"""The longest a call waits for one answer."""
_TENANT = re.compile(r"https://[^/]+/([^/]+)/oauth2/.*")
_GOOGLE_LOGINS = (
    "", "APPLICATION_DEFAULT", "COMPUTE_ENGINE", "SERVICE_ACCOUNT_JSON_KEYFILE", "UNAUTHENTICATED",
)  # fmt: skip
_AZURE_LOGINS = ("", "SharedKey", "OAuth", "SAS")


@dataclass(frozen=True)
class CloudOptions:
    """The access to one bucket or container.

    options: by the library's names. What is missing there it looks for in the environment and on
        the machine. `repr` hides them.
    """

    scheme: str
    bucket: str
    options: tuple[tuple[str, str], ...] = field(repr=False)

    @classmethod
    def of(cls, uri: str, settings: HadoopSettings) -> "CloudOptions":
        """Read the settings for this URI's store.

        Raises ConfigurationError for a way to log in that Hadoop's connector alone knows.
        """
        scheme, _, rest = uri.partition("://")
        authority = rest.partition("/")[0]
        bucket, _, host = authority.partition("@")
        options = _google(settings) if scheme == "gs" else _azure(host, settings)
        return cls(scheme, bucket, tuple((name, text) for name, text in options.items() if text))

    @property
    def is_plain(self) -> bool:
        """Whether the store is asked by ``http:``, as emulators are."""
        return any("http://" in text for _, text in self.options)


def _google(settings: HadoopSettings) -> dict[str, str]:
    login = settings.get("fs.gs.auth.type", "")
    if login not in _GOOGLE_LOGINS:
        raise _unknown("fs.gs.auth.type", login, _GOOGLE_LOGINS)
    keyfile = settings.get("fs.gs.auth.service.account.json.keyfile", "")
    root = settings.get("fs.gs.storage.root.url", "").rstrip("/")
    if login == "UNAUTHENTICATED":
        # The library skips its signatures by an account alone that says so.
        account = (
            f'{{"gcs_base_url": "{root or "https://storage.googleapis.com"}", "disable_oauth": '
            'true, "client_email": "", "private_key": "", "private_key_id": ""}'
        )
        return {"google_service_account_key": account}
    return {"google_service_account": keyfile, "google_base_url": root}


def _azure(host: str, settings: HadoopSettings) -> dict[str, str]:
    def get(name: str) -> str:
        """Return a setting of this account, or that of all accounts."""
        return settings.get(f"{name}.{host}", "") or settings.get(name, "")

    login = get("fs.azure.account.auth.type")
    if login not in _AZURE_LOGINS:
        raise _unknown("fs.azure.account.auth.type", login, _AZURE_LOGINS)
    tenant = _TENANT.fullmatch(get("fs.azure.account.oauth2.client.endpoint"))
    oauth = "fs.azure.account.oauth2"
    return {
        "azure_storage_account_name": host.partition(".")[0],
        "azure_storage_account_key": get("fs.azure.account.key"),
        "azure_storage_sas_key": get("fs.azure.sas.fixed.token"),
        "azure_storage_client_id": get(f"{oauth}.client.id"),
        "azure_storage_client_secret": get(f"{oauth}.client.secret"),
        "azure_storage_tenant_id": tenant[1] if tenant else get(f"{oauth}.msi.tenant"),
        "azure_storage_endpoint": get("fs.azure.abfs.endpoint"),
    }


def _unknown(name: str, login: str, allowed: tuple[str, ...]) -> ConfigurationError:
    return ConfigurationError(
        f"{name} is {login!r}, which Hadoop's connector alone knows; allowed are "
        f"{', '.join(filter(None, allowed))}"
    )
