"""How: messages as real systems write them, with a secret in each, and messages without one, to
stay as they are."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field

import pytest

from seamark.model.redaction import HIDDEN, Redactor, redact, secrets_in

SECRET = "s3cr3t-Hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f'connection to "postgresql://writer:{SECRET}@db.example:5432/shop?sslmode=require" failed',
        f"mysql+pymysql://root:{SECRET}@localhost/db",
        f"s3a://AKIAIOSFODNN7EXAMPLE:{SECRET}@bucket/checkpoints",
        f"s3a://AKIA:wJalr/XUt+{SECRET}/bPx@bucket/checkpoints",
        f"redis://:{SECRET}@cache:6379/0",
        f"https://{SECRET}@hooks.example/post",
        f"root:{SECRET}@tcp(127.0.0.1:3306)/db",
        f"host=db user=writer password={SECRET} dbname=shop",
        f"host=db password='{SECRET} with blanks' dbname=shop",
        f"jdbc:postgresql://db/shop?user=writer&password={SECRET}&ssl=true",
        f"https://account.blob.example/c?sv=2024&sig={SECRET}%3D&se=2030",
        f"https://bucket.s3.example/k?X-Amz-Credential=a&X-Amz-Signature={SECRET}",
        f"KafkaError: sasl.password={SECRET}, sasl.username=me",
        f"{{'sasl.password': '{SECRET}', 'acks': 'all'}}",
        f'{{"sasl.password": "{SECRET}\\"x", "acks": "all"}}',
        f'org.apache.kafka...ScramLoginModule required username="me" password="{SECRET}";',
        f"sasl.jaas.config=PlainLoginModule required username=me password={SECRET};",
        f"fs.s3a.secret.key: {SECRET}",
        f"fs.s3a.access.key={SECRET}",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"aws_session_token => {SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"curl -H 'authorization: Basic {SECRET}='",
        f"the server refused bearer {SECRET}xyz",
        f"setting password is '{SECRET}'; allowed are 8 characters",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"api_key={SECRET}",
        f"PASSWORD={SECRET}",
        f"db.passwd:{SECRET}",
        f"pass={SECRET}",
        f"pw={SECRET}",
        f"host=db user=me pass='{SECRET} with blanks' dbname=shop",
        f"https://db.example/shop?user=me&pw={SECRET}",
        f"https://db.example/shop?pass={SECRET}&ssl=1",
        f"DB_PASS={SECRET}",
        f"dbpass => {SECRET}",
        f"db.pass: {SECRET}",
        f"smtp_pw: {SECRET}",
        f'{{"pass": "{SECRET}"}}',
        f"{{'user': 'me', 'pw': '{SECRET}'}}",
        f"keytool -storepass={SECRET}",
        f"userPass2={SECRET}",
        f"cannot read /etc/passwd: password = {SECRET}",
        f"/etc/passwd: password={SECRET}",
        f"passwd: {SECRET}",
        f"{{'url': 'http://h', 'basic.auth.user.info': 'me:{SECRET}'}}",
        f"header.X-Anything={SECRET}",
        f"fs.s3a.encryption.key={SECRET}",
        f"azure_storage_master_key={SECRET}",
        f"azure_storage_sas_key={SECRET}",
        f"aws_sse_customer_key_base64={SECRET}",
        f"https://db.example/passwd: {SECRET}",
        f"--password-file=/etc/passwd password: {SECRET}",
    ],
)
def test_what_looks_like_a_secret_goes(text: str) -> None:
    shown = redact(text)
    assert SECRET not in shown
    assert "Hunter2" not in shown
    assert HIDDEN in shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "COMPLETED",
        "file:///var/lib/seamark/clicks/epochs/7",
        "hdfs://namenode:8020/seamark/a@b",
        "http://127.0.0.1:35123/jobs/0123456789abcdef0123456789abcdef",
        "ValueError: the row says fail",
        "Kafka topic orders at localhost:9092 (exactly-once)",
        "epoch 7 was not decided within 600 s; it is aborted and runs again",
        "mail someone@example.com about the row 10:30 is late",
        "checkpoint.interval: 5s",
        "cannot open /etc/passwd: No such file or directory",
        "[Errno 13] Permission denied: '/etc/passwd': it is root's",
        "/etc/passwd is not readable",
        "open(~/.config/db-password): no such file",
        "file:///run/secrets/token: permission denied",
        "./secret: is a directory",
        "the first pass: 7 rows, the second pass is done",
        "bypass=true, compass=north",
        "passage=7 passes=3 pwm=1",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("part", ["a.", "pass:", "/etc/passwd: ", "x", "/a", "a:b@", "'", "pw-is "])
def test_no_text_takes_long(part: str) -> None:
    begun = time.monotonic()
    redact(part * (50_000 // len(part)) + "=")
    assert time.monotonic() - begun < 5  # 10 kB took half a minute


def test_text_around_a_secret_stays() -> None:
    found = redact(f'connect "postgresql://writer:{SECRET}@db:5432/shop" failed after 5 s')
    assert found == f'connect "postgresql://{HIDDEN}@db:5432/shop" failed after 5 s'
    quoted = json.dumps({"password": 'a"b', "user": "me"})
    assert json.loads(redact(quoted))["user"] == "me"


@dataclass
class _Sink:
    url: str
    password: str
    options: dict[str, str] = field(default_factory=dict)
    inner: object = None


def test_known_secrets_go_wherever_they_stand() -> None:
    sink = _Sink(
        "postgresql://me:p%40ss-word@db/x",
        SECRET,
        {"sasl.password": "kafka-pass", "acks": "all"},
        _Sink("http://plain/", "clicks", {"ssl.key.password": "inner-pass", "use.token": "false"}),
    )
    found = secrets_in({"to-db": sink})
    assert found == {"p%40ss-word", SECRET, "kafka-pass", "inner-pass", "clicks", "false"}
    assert secrets_in([{"headers": {"X-Any": "header-value"}}]) == {"header-value"}
    assert "p@ss-word" in secrets_in("mysql://me:p@ss-word@db/x?at=a@b")
    hide = Redactor(found, public=["clicks-per-minute"])
    assert hide("clicks-per-minute has false") == "clicks-per-minute has false"
    text = f"tried p@ss-word, p%40ss-word, {SECRET} and kafka-pass with acks all: inner-pass"
    assert hide(text) == (
        f"tried {HIDDEN}, {HIDDEN}, {HIDDEN} and {HIDDEN} with acks all: {HIDDEN}"
    )
    assert hide.everywhere({"a": [text], "password": "x", "n": 3, "u": None}) == {
        "a": [hide(text)],
        "password": HIDDEN,
        "n": 3,
        "u": None,
    }
