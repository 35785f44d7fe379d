"""A broker with TLS, passwords and access control: its listener SECURE is SASL_SSL.

It takes PLAIN and SCRAM-SHA-512. Its certificate is signed by an authority of its own, made with
Java's keytool. Over the PLAINTEXT listener everything is allowed, for tests to look and to grant;
over SECURE a user may do only the operations granted to it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from seamark.dev.kafka import LocalKafka
from seamark.spark.jars import find_java
from tests.chaos.driver import wait_until

USER, PASSWORD = "etl", "s3cr3t-of-etl"
POOR_USER, POOR_PASSWORD = "poor", "s3cr3t-of-poor"
_STORE_PASSWORD = "changeit"
_LOGIN = "org.apache.kafka.common.security.{}LoginModule required"


class SecureKafka:
    """Started by `with`; `directory` is the caller's."""

    def __init__(self, directory: Path) -> None:
        self.authority = directory / "ca.pem"
        store = directory / "broker.p12"
        _make_certificates(store, self.authority)
        prefix = "listener.name.secure"
        users = "".join(
            f' user_{name}="{password}"'
            for name, password in ((USER, PASSWORD), (POOR_USER, POOR_PASSWORD))
        )
        self.cluster = LocalKafka(
            listeners={"SECURE": "SASL_SSL"},
            overrides={
                f"{prefix}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
                f"{prefix}.plain.sasl.jaas.config": f"{_LOGIN.format('plain.Plain')}{users};",
                f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_LOGIN.format('scram.Scram')};",
                f"{prefix}.ssl.keystore.location": str(store),
                f"{prefix}.ssl.keystore.type": "PKCS12",
                f"{prefix}.ssl.keystore.password": _STORE_PASSWORD,
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            },
        )
        self._admin: Any = None

    @property
    def servers(self) -> str:
        """The address of the secure listener."""
        return self.cluster.address("SECURE")

    def client(
        self, mechanism: str = "PLAIN", user: str = USER, password: str = PASSWORD
    ) -> dict[str, object]:
        """Return librdkafka's settings for the secure listener."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    def spark(self) -> dict[str, object]:
        """Return Spark's options for the secure listener."""
        login = f'{_LOGIN.format("plain.Plain")} username="{USER}" password="{PASSWORD}";'
        return {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": login,
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.authority),
        }

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic and return its name."""
        from confluent_kafka.admin import NewTopic

        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result(300)
        return name

    def grant(self, kind: str, name: str, *operations: str, user: str = USER) -> None:
        """Let `user` do `operations` on names beginning with `name`; `kind` is TOPIC, GROUP or
        TRANSACTIONAL_ID."""
        from confluent_kafka.admin import (
            AclBinding,
            AclBindingFilter,
            AclOperation,
            AclPermissionType,
            ResourcePatternType,
            ResourceType,
        )

        for operation in operations:
            asked = (
                ResourceType[kind], name, ResourcePatternType.PREFIXED, f"User:{user}", "*",
                AclOperation[operation], AclPermissionType.ALLOW,
            )  # fmt: skip
            binding = AclBinding(*asked)
            self._admin.create_acls([binding])[binding].result(300)
            # That is the controller's answer. The broker hears of it a little later.
            wait_until(
                f"the broker knows {binding}",
                lambda asked=asked: self._admin.describe_acls(AclBindingFilter(*asked)).result(300),
                30,
            )

    def __enter__(self) -> SecureKafka:
        from confluent_kafka.admin import (
            AdminClient,
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialUpsertion,
        )

        self.cluster.start()
        try:
            info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
            scram = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
            self._admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
            self._admin.alter_user_scram_credentials([scram])[USER].result(300)
        except BaseException:
            self.cluster.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.stop()


def _make_certificates(store: Path, authority: Path) -> None:
    """Make an authority and a broker's certificate signed by it, both in `store`."""
    keytool = str(find_java().resolve().with_name("keytool"))
    common = ["-keystore", str(store), "-storepass", _STORE_PASSWORD]
    pair = ["-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "2"]
    for arguments in (
        [*pair, "-alias", "authority", "-dname", "CN=tests", "-ext", "bc:critical=ca:true",
         "-ext", "ku:critical=keyCertSign,cRLSign"],
        [*pair, "-alias", "broker", "-dname", "CN=broker", "-signer", "authority",
         "-ext", "san=ip:127.0.0.1"],
        ["-exportcert", "-rfc", "-alias", "authority", "-file", str(authority)],
        # Else the broker could take the authority's own certificate for its own.
        ["-delete", "-alias", "authority"],
    ):  # fmt: skip
        subprocess.run([keytool, *arguments, *common], check=True, capture_output=True, timeout=300)
