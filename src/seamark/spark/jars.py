"""Fetches jars from Maven with the Ivy bundled in PySpark: no Maven, no root, no wheel of jars.

Each set of jars has a directory of its own under `${XDG_CACHE_HOME:-~/.cache}/seamark/jars`, and is
fetched once. Invariants:

- A directory under its final name is complete: it is filled under another name and then renamed.
- Its `complete.json` names every jar and its size. If a jar has since gone or changed size, the set
  is fetched again.
- One process fetches a set at a time (a file lock, released by the kernel with its holder). The
  others wait and then use the fetched set.

PySpark's folder and version are looked up without importing it: starting a broker needs no Spark.
`python -m seamark.spark.jars` fetches the Kafka broker and Spark's Kafka connector beforehand.
"""

import fcntl
import importlib
import json
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from seamark.model.errors import MissingDependencyError
from seamark.model.packages import NO_PYSPARK, SPARK_REMEDY, spec_of
from seamark.spark.child_jvm import release, start_jvm
from seamark.spark.connect import needs_driver

KAFKA_VERSION = "4.3.0"
MINIMUM_JAVA = 17
AWS_SDK_VERSION = "2.35.4"
"""The version hadoop-aws 3.4.2 and 3.5 are built with."""
OLDEST_SPARK = (4, 0)
_CONNECTORS = ("4.0.2", "4.1.1", "4.2.0")
_AVRO_MODULES = ("4.0.2", "4.1.1")

_IVY_TIMEOUT_S = 900
_MARKER = "complete.json"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """A request to Maven.

    `artifacts` are `group:artifact:version[:classifier[@ext]]`; they are jars unless `ext` says.
    `transitive` adds their run-time dependencies, but for `excludes` (`group:artifact`, or
    `group:*`). `remark` explains an unusual choice in the log.
    """

    artifacts: tuple[str, ...]
    transitive: bool = True
    remark: str = ""
    excludes: tuple[str, ...] = ()


def cache_directory(of: str) -> Path:
    """Return the user's cache directory for things of this kind; it outlives the program. It may
    not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "seamark" / of


def find_java() -> Path:
    """Return the `java` program Spark would use: from JAVA_HOME if it is set, else from PATH.

    Raises `MissingDependencyError`, in one line, when there is none or it is older than Java 17.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    remedy = f"install a Java {MINIMUM_JAVA} runtime, or set JAVA_HOME to one"
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on PATH, and JAVA_HOME is not set"
        raise MissingDependencyError(f"no java {where}; {remedy}")
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingDependencyError(f"{java} does not run ({error}); {remedy}") from error
    version = re.search(r'version "(?:1\.)?(\d+)', answer)
    if version is None:
        raise MissingDependencyError(f"{java} names no version ({answer.strip()!r}); {remedy}")
    if int(version[1]) < MINIMUM_JAVA:
        raise MissingDependencyError(f"{java} is Java {version[1]}, too old; {remedy}")
    return Path(java)


def spark_version() -> str:
    """Return the version of the PySpark behind `import pyspark`, without importing it.

    Raises `MissingDependencyError` when there is no PySpark.
    """
    directory = _pyspark_directory()
    try:
        text = (directory / "version.py").read_text()
    except NotADirectoryError:  # under spark-submit it can be in a zip file
        return str(importlib.import_module("pyspark.version").__version__)
    version = re.search(r"""^__version__[^=]*=\s*["']([^"']+)["']""", text, re.MULTILINE)
    if version is None:
        raise MissingDependencyError(f"{directory} holds no version; {SPARK_REMEDY}")
    return version[1]


def require_pyspark() -> None:
    """Raise MissingDependencyError unless ``import pyspark`` gives one that Seamark runs on. Called
    at the first use of a name that needs Spark."""
    version = spark_version()
    if spec_of("py4j") is None:  # the package pyspark-client
        raise needs_driver(f"PySpark {version} in {_pyspark_directory()}")
    if _line(version) < OLDEST_SPARK:
        raise MissingDependencyError(
            f"PySpark {version} in {_pyspark_directory()} is too old: Seamark needs 4.0 or later; "
            f"{SPARK_REMEDY}, or submit with a newer Spark"
        )
    if spec_of("pandas") is None:
        raise MissingDependencyError(
            "PySpark's mapInArrow needs pandas in the driver, and it is not installed; "
            "pip install 'pandas>=2.2,<3'"
        )


def kafka_broker_jars() -> list[Path]:
    """Return the class path of a Kafka broker (43 MB, fetched at the first call; then quick).

    Raises `MissingDependencyError` when there is no Java or the jars cannot be fetched.
    """
    return resolve(
        f"kafka-broker-{KAFKA_VERSION}",
        Request(
            (
                f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
                # Without a logger of its own the broker does not tell why it fails to start.
                "org.slf4j:slf4j-simple:1.7.36",
            )
        ),
    )


def spark_kafka_jars(version: str | None = None) -> list[Path]:
    """Return Spark's Kafka connector, for `spark.jars`; `version` None means the installed
    PySpark's.

    Tries the connector of exactly this version first. Some mirrors of Maven lack it, or its token
    provider. Then a connector of the same release line is taken, if need be with another line's
    token provider (used only for delegation tokens), and the log says so.

    Raises `MissingDependencyError` when there is no Java or none of these can be fetched.
    """
    version = version or spark_version()
    connector = "org.apache.spark:spark-sql-kafka-0-10_2.13"
    known = _nearest(version, _CONNECTORS)
    requests = [Request((f"{connector}:{version}",))]
    if version != known:
        remark = f"connector {known} stands in for {version}, which is not to be had"
        requests.append(Request((f"{connector}:{known}",), remark=remark))
    for provider in ("4.1.0-preview1", "4.0.0"):
        requests.append(
            Request(
                (
                    f"{connector}:{known}",
                    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{provider}",
                    "org.apache.kafka:kafka-clients:3.9.2",
                    "org.apache.commons:commons-pool2:2.13.1",
                ),
                transitive=False,
                remark=f"connector {known} with token provider {provider} stands in for {version}, "
                "which is not to be had whole",
            )
        )
    return resolve(f"spark-kafka-{version}", *requests)


def spark_avro_jars(version: str) -> list[Path]:
    """Return Spark's Avro module, of exactly `version` if it can be fetched. Otherwise return the
    nearest one known, with a warning in the log: it works too, since most of Avro is in Spark
    itself.

    Raises `MissingDependencyError` when there is no Java or neither can be fetched.
    """
    module = "org.apache.spark:spark-avro_2.13"
    known = _nearest(version, _AVRO_MODULES)
    remark = f"spark-avro {known} stands in for {version}, which is not to be had"
    return resolve(
        f"spark-avro-{version}",
        Request((f"{module}:{version}",), transitive=False),
        Request((f"{module}:{known}",), transitive=False, remark=remark),
    )


def s3a_jars() -> list[Path]:
    """Return the S3A connector for `spark.jars` (20 MB, fetched at the first call).

    hadoop-aws asks for the SDK's bundle of all Amazon services, 690 MB; three parts of the SDK are
    enough. Raises `MissingDependencyError` when there is no Java or the jars cannot be fetched.
    """
    version = hadoop_version()
    sdk = "software.amazon.awssdk"
    return resolve(
        f"s3a-{version}",
        Request(
            (
                f"org.apache.hadoop:hadoop-aws:{version}",
                *(f"{sdk}:{part}:{AWS_SDK_VERSION}" for part in ("s3", "s3-transfer-manager")),
                f"{sdk}:sts:{AWS_SDK_VERSION}",
            ),
            excludes=(f"{sdk}:bundle", "org.slf4j:*"),  # Spark has its own SLF4J
        ),
    )


def _nearest(version: str, known: Sequence[str]) -> str:
    """Return the `known` version of this release line, else of the newest line before it, else the
    oldest."""
    wanted = _line(version)
    return max(
        (one for one in known if _line(one) <= wanted), default=min(known, key=_line), key=_line
    )


def _line(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def resolve(name: str, *requests: Request) -> list[Path]:
    """Return the jars of the first available request of `requests`, fetched into the cache as
    `name`.

    A set already in the cache is returned at once, whichever request gave it. So after a fallback
    has worked, better requests are not tried again; delete the set's directory to try anew. Safe
    against concurrent calls of other processes, and against being killed in the middle.

    Raises `MissingDependencyError` with Ivy's reason when no request can be fetched, or if the
    cache cannot be written.
    """
    target = cache_directory("jars") / name
    jars = _complete(target)
    if jars is None:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.with_name(f"{name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                jars = _complete(target) or _fetch(target, requests)
        except OSError as error:
            raise MissingDependencyError(
                f"jars of {name} cannot be kept in {target.parent}: {error.strerror or error}; "
                "make it writable for this user, or set XDG_CACHE_HOME to a directory that is"
            ) from error
    remark = json.loads((target / _MARKER).read_text())["remark"]
    if remark:
        _log.warning("%s: %s", name, remark)
    return jars


def _fetch(target: Path, requests: Sequence[Request]) -> list[Path]:
    """Fill `target` and return its jars; the caller holds the lock."""
    java, ivy = find_java(), pyspark_jars()
    reason = "nothing was asked for"
    for left_over in target.parent.glob(f"{target.name}.partial-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    for request in requests:
        partial = Path(tempfile.mkdtemp(prefix=f"{target.name}.partial-", dir=target.parent))
        try:
            _log.info("fetching %s (once; kept in %s)", ", ".join(request.artifacts), target)
            reason = _run_ivy(java, ivy, request, partial)
            if reason:
                _log.info("not to be had: %s", reason)
                continue
            sizes = {jar.name: jar.stat().st_size for jar in sorted(_fetched(partial))}
            record = {"artifacts": request.artifacts, "remark": request.remark, "jars": sizes}
            (partial / _MARKER).write_text(json.dumps(record, indent=1))
            partial.chmod(0o755)
            shutil.rmtree(target, ignore_errors=True)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return [target / jar for jar in sizes]
    raise MissingDependencyError(
        f"jars of {target.name}: {reason}; check that Maven can be reached from here, or name a "
        "mirror in an Ivy settings file by SEAMARK_IVY_SETTINGS=/path/to/ivysettings.xml"
    )


def _fetched(directory: Path) -> Iterator[Path]:
    return (file for file in directory.iterdir() if file.suffix in (".jar", ".gz"))


def _run_ivy(java: Path, ivy: Path, request: Request, directory: Path) -> str:
    """Fetch `request` into `directory`; return "", or the reason of the failure in one line."""
    dependencies = ""
    for artifact in request.artifacts:
        group, module, version, *classified = artifact.split(":")
        chosen = "".join(
            f'<artifact name={quoteattr(module)} type="{ext or "jar"}" ext="{ext or "jar"}" '
            f"m:classifier={quoteattr(classifier)}/>"
            for classifier, _, ext in (one.partition("@") for one in classified)
        )
        dependencies += (
            f"<dependency org={quoteattr(group)} name={quoteattr(module)} rev={quoteattr(version)}"
            f' conf="default->{"default" if request.transitive else "master"}">'
            f"{chosen}</dependency>"
        )
    for exclude in request.excludes:
        group, module = exclude.split(":")
        dependencies += f"<exclude org={quoteattr(group)} module={quoteattr(module)}/>"
    scratch = directory / "ivy"  # Ivy's own cache is not safe between processes
    scratch.mkdir()
    (scratch / "ivy.xml").write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="seamark" module="jars"/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    settings = os.environ.get("SEAMARK_IVY_SETTINGS")
    arguments = [
        *("-cp", f"{ivy}/*", "org.apache.ivy.Main"),
        *(("-settings", settings) if settings else ()),
        *("-ivy", str(scratch / "ivy.xml"), "-cache", str(scratch / "cache"), "-confs", "default"),
        *("-retrieve", f"{directory}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    with (directory / "ivy.log").open("w+b") as log:
        process = start_jvm(java, arguments, log)
        try:
            code = process.wait(_IVY_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"Ivy did not end within {_IVY_TIMEOUT_S} s"
        finally:
            process.kill()
            process.wait()
            release(process)
            shutil.rmtree(scratch, ignore_errors=True)
        log.seek(0)
        report = log.read().decode(errors="replace")
    if code == 0 and any(_fetched(directory)):
        return ""
    # Keep the cause from Ivy's long report: missing artifacts, or the server's error.
    causes = re.findall(
        r"^\W*(\S+#\S+;\S+: .+|\[FAILED +\].+|.*(?:Exception|error).*)$", report, re.MULTILINE
    )
    lines = [cause.strip() for cause in causes] or report.strip().splitlines()[-1:]
    return "; ".join(dict.fromkeys(lines[-3:])) or f"Ivy ended with code {code}"


def _complete(directory: Path) -> list[Path] | None:
    """Return the jars of a complete set; None if it must be fetched."""
    try:
        sizes = json.loads((directory / _MARKER).read_text())["jars"]
        if all((directory / jar).stat().st_size == size for jar, size in sizes.items()):
            return [directory / jar for jar in sizes]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # missing or damaged: fetching it anew mends it
    return None


def _pyspark_directory() -> Path:
    spec = spec_of("pyspark")
    if spec is None or not spec.origin:
        raise MissingDependencyError(NO_PYSPARK)
    return Path(spec.origin).parent


def pyspark_jars() -> Path:
    """Return the folder of PySpark's own jars, including Ivy. Raises MissingDependencyError when
    there is none."""
    candidates = [_pyspark_directory() / "jars"]
    if os.environ.get("SPARK_HOME"):  # a Spark distribution: its Python part carries no jars
        candidates.append(Path(os.environ["SPARK_HOME"], "jars"))
    for directory in candidates:
        if any(directory.glob("ivy-*.jar")):
            return directory
    raise MissingDependencyError(
        f"no ivy-*.jar in {' or '.join(map(str, candidates))}; {SPARK_REMEDY}"
    )


def hadoop_version() -> str:
    """Return the version of PySpark's Hadoop client."""
    for jar in pyspark_jars().glob("hadoop-client-api-*.jar"):
        if version := re.fullmatch(r"hadoop-client-api-(\d[\d.]*)\.jar", jar.name):
            return version[1]
    raise MissingDependencyError(
        f"{pyspark_jars()} has no hadoop-client-api jar; reinstall it: {SPARK_REMEDY}"
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        kafka_broker_jars()
        spark_kafka_jars()
    except MissingDependencyError as error:
        raise SystemExit(f"seamark: {error}") from None
