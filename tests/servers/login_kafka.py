"""A broker with two listeners that take no password: OAUTH (tokens) and MUTUAL (certificates).

`TokenEndpoint` is an OIDC provider's: over HTTPS it gives a signed JWT for a client's id and
secret. The broker checks the signature by the provider's published keys, a file. All certificates
are signed by one authority of the tests'.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import threading
import time
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from unittest import mock

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from seamark.dev.kafka import LocalKafka
from tests.every_type import UTC

CLIENT, SECRET = "etl", "s3cr3t-of-etl's-client"
ISSUER, AUDIENCE = "https://tests.invalid", "kafka"
ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""The Java property with the URLs that Kafka's Java client may ask for tokens or keys."""
_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


class TokenEndpoint:
    """Started by `with`. `given` counts the tokens given."""

    def __init__(self, certificate: Path, keys: Path, lifetime_s: int = 60) -> None:
        self.given = 0
        self._key = rsa.generate_private_key(65537, 2048)
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "one"}
        for name, number in (("n", numbers.n), ("e", numbers.e)):
            key[name] = _encoded(number.to_bytes(-(-number.bit_length() // 8), "big"))
        keys.write_text(json.dumps({"keys": [key]}))
        endpoint, login = self, base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                body: dict[str, Any] = {"error": "invalid_client"}
                good = self.headers["Authorization"] == f"Basic {login}"
                if good and "grant_type=client_credentials" in form:
                    token = endpoint.token(lifetime_s)
                    body = {"access_token": token, "token_type": "Bearer", "expires_in": lifetime_s}
                data = json.dumps(body).encode()
                self.send_response(200 if "access_token" in body else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}/token"

    def token(self, lifetime_s: int) -> str:
        """Return a token that the broker takes."""
        self.given += 1
        now = int(time.time())
        claims = {
            "iss": ISSUER, "aud": AUDIENCE, "sub": CLIENT, "scope": "kafka", "iat": now,
            "exp": now + lifetime_s,
        }  # fmt: skip
        parts = ({"alg": "RS256", "kid": "one", "typ": "JWT"}, claims)
        signed = ".".join(_encoded(json.dumps(part).encode()) for part in parts)
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_encoded(signature)}"

    def __enter__(self) -> TokenEndpoint:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class LoginKafka:
    """Started by `with`; `directory` is the caller's."""

    def __init__(self, directory: Path) -> None:
        self.authority, self.own = directory / "ca.pem", directory / "client.pem"
        broker, keys = directory / "broker.pem", directory / "jwks.json"
        make_certificates(self.authority, {broker: "broker", self.own: "etl"})
        self.tokens = TokenEndpoint(broker, keys)
        self._keys_url = keys.as_uri()
        oauth, overrides = "listener.name.oauth", {}
        for listener in ("oauth", "mutual"):
            for kind, file in (("keystore", broker), ("truststore", self.authority)):
                overrides[f"listener.name.{listener}.ssl.{kind}.type"] = "PEM"
                overrides[f"listener.name.{listener}.ssl.{kind}.location"] = str(file)
        overrides |= {
            "listener.name.mutual.ssl.client.auth": "required",
            f"{oauth}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{oauth}.oauthbearer.sasl.server.callback.handler.class": _HANDLER,
            f"{oauth}.oauthbearer.sasl.jaas.config": f"{_MODULE} required;",
            "sasl.oauthbearer.jwks.endpoint.url": self._keys_url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
        }
        listeners = {"OAUTH": "SASL_SSL", "MUTUAL": "SSL"}
        self.cluster = LocalKafka(listeners=listeners, overrides=overrides)

    def by_token(self, secret: str = SECRET) -> dict[str, object]:
        """Return librdkafka's settings for the listener OAUTH."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "https.ca.location": str(self.authority),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": CLIENT,
            "sasl.oauthbearer.client.secret": secret,
            "sasl.oauthbearer.token.endpoint.url": self.tokens.url,
            "sasl.oauthbearer.scope": "kafka",
        }

    def by_token_in_java(self) -> dict[str, object]:
        """Return Java's."""
        store = f'ssl.truststore.type="PEM" ssl.truststore.location="{self.authority}"'
        login = f'clientId="{CLIENT}" clientSecret="{SECRET}" scope="kafka" {store}'
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": self.tokens.url,
            "sasl.login.callback.handler.class": _HANDLER.replace("Validator", "Login"),
            "sasl.jaas.config": f"{_MODULE} required {login};",
        }

    def by_certificate(self) -> dict[str, object]:
        """Return librdkafka's settings for the listener MUTUAL."""
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority),
            "ssl.certificate.location": str(self.own),
            "ssl.key.location": str(self.own),
        }

    def __enter__(self) -> LoginKafka:
        before = os.environ.get("JAVA_TOOL_OPTIONS", "")
        allowed = {"JAVA_TOOL_OPTIONS": f"{before} -D{ALLOWED}={self._keys_url}"}
        with mock.patch.dict(os.environ, allowed):
            self.cluster.start()
        self.tokens.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.tokens.__exit__()
        self.cluster.stop()


def make_certificates(authority: Path, names: dict[Path, str]) -> None:
    """Make an authority, and for each file a key with a certificate of this name signed by it."""
    signer = rsa.generate_private_key(65537, 2048)
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])

    def certificate(name: x509.Name, key: rsa.RSAPublicKey, ca: bool) -> bytes:
        now = datetime.now(UTC)
        local = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        made = x509.CertificateBuilder(
            issuer, name, key, x509.random_serial_number(),
            now - timedelta(hours=1), now + timedelta(days=2),
        )  # fmt: skip
        made = made.add_extension(x509.BasicConstraints(ca, None), critical=True)
        signed = made.add_extension(local, critical=False).sign(signer, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    authority.write_bytes(certificate(issuer, signer.public_key(), True))
    for file, name in names.items():
        key = rsa.generate_private_key(65537, 2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        file.write_bytes(pem + certificate(subject, key.public_key(), False))


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
