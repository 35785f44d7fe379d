"""The real systems of a verification: started here behind a proxy, or given and left alone."""

import contextlib
import errno
import shutil
import subprocess
from collections.abc import Callable, Collection
from pathlib import Path

from seamark.dev.kafka import LocalKafka
from seamark.dev.postgres import PostgresServer
from seamark.model.errors import MissingDependencyError
from seamark.verify.clock import WrongClock
from seamark.verify.proxy import CuttingProxy

DISK_BYTES = 128_000_000
_PROXIED = "PROXIED"


class LimitedDisk:
    """A file system of DISK_BYTES in memory, mounted at `directory`. Raises MissingDependencyError
    where it cannot be mounted: that takes root."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(directory)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise MissingDependencyError(f"no file system can be mounted: {error}") from error
        if done.returncode:
            raise MissingDependencyError(
                f"no file system can be mounted (root can): {done.stderr.strip()}"
            )

    def fill(self) -> None:
        """Leave no byte."""
        with (self.directory / "ballast").open("wb", buffering=0) as ballast:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        ballast.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        """Give the space back."""
        (self.directory / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it. Its content stays in the directory, on the disk below."""
        self.free()
        copy = self.directory.with_name(f"{self.directory.name}.copy")
        try:
            shutil.copytree(self.directory, copy)
        finally:  # also if a signal ends the copying
            subprocess.run(["umount", "-l", str(self.directory)], capture_output=True, check=False)
        self.directory.rmdir()
        copy.rename(self.directory)


class Systems:
    """A context manager with Kafka, and PostgreSQL if wanted. `left_out` says for each fault that
    cannot be had here why not.

    given: the addresses of a given Kafka and PostgreSQL; None is a server of our own. brokers: of a
    Kafka of our own; each topic is on all of them.
    """

    def __init__(
        self,
        directory: Path,
        faults: Collection[str],
        given: tuple[str | None, str | None] = (None, None),
        needs_postgres: bool = False,
        brokers: int = 1,
    ) -> None:
        self._directory = directory
        self._faults = faults
        self._given = given
        self._needs_postgres = needs_postgres
        self._brokers = brokers
        self._stack = contextlib.ExitStack()
        self.kafka: LocalKafka | None = None
        self.postgres: PostgresServer | None = None
        self.proxies: dict[str, CuttingProxy] = {}
        self._kafka_proxies: list[CuttingProxy] = []
        self.disk: LimitedDisk | None = None
        self.clock: WrongClock | None = None
        self.storage = directory / "storage"
        self.left_out: dict[str, str] = {}

    def __enter__(self) -> "Systems":
        try:
            self._start_kafka()
            self._start_postgres()
            self._find("disk-full", self._mount)
            self._find("clock", self._find_clock)
        except BaseException:
            self._stack.close()
            raise
        if not self.proxies:
            self.left_out["connection"] = "no server was started here, so no proxy is before one"
        self.storage.mkdir(exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def kafka_direct(self) -> str:
        """Kafka's address for generator and readers."""
        return self.kafka.bootstrap_servers if self.kafka else str(self._given[0])

    @property
    def kafka_for_job(self) -> str:
        """Kafka's address for the job: behind the proxy, if there is one."""
        if self.kafka is None:
            return self.kafka_direct
        return ",".join(f"127.0.0.1:{proxy.port}" for proxy in self._kafka_proxies)

    @property
    def postgres_direct(self) -> str:
        """PostgreSQL's URL for readers."""
        return self.postgres.url() if self.postgres else str(self._given[1])

    @property
    def postgres_for_job(self) -> str:
        """PostgreSQL's URL for the job: behind the proxy, if there is one."""
        proxy = self.proxies.get("PostgreSQL")
        return (
            self.postgres.url(port=proxy.port) if self.postgres and proxy else self.postgres_direct
        )

    def _start_kafka(self) -> None:
        if self._given[0]:
            self.left_out["broker"] = f"Kafka at {self._given[0]} was given, so it is left alone"
            return
        proxies = [self._stack.enter_context(CuttingProxy()) for _ in range(self._brokers)]
        self.kafka = LocalKafka(
            self._brokers,
            directory=self._directory / "kafka",
            listeners={_PROXIED: "PLAINTEXT"},
            advertised={_PROXIED: [proxy.port for proxy in proxies]},
        )
        self._stack.enter_context(self.kafka)
        for number, address in enumerate(self.kafka.address(_PROXIED).split(",")):
            host, _, port = address.partition(":")
            proxies[number].target = host, int(port)
            self.proxies[f"broker {number + 1}"] = proxies[number]
        self._kafka_proxies = proxies

    def _start_postgres(self) -> None:
        if self._given[1]:
            self.left_out["database"] = "PostgreSQL was given, so it is left alone"
            return
        if not self._needs_postgres:
            self.left_out["database"] = "no sink of this job is on PostgreSQL"
            return
        self.postgres = self._stack.enter_context(PostgresServer())
        proxy = CuttingProxy("127.0.0.1", self.postgres.port)
        self.proxies["PostgreSQL"] = self._stack.enter_context(proxy)

    def _find(self, fault: str, make: Callable[[], None]) -> None:
        if fault in self._faults:
            try:
                make()
            except MissingDependencyError as error:
                self.left_out[fault] = str(error)

    def _find_clock(self) -> None:
        self.clock = WrongClock(self._directory / "clock")

    def _mount(self) -> None:
        self.disk = LimitedDisk(self.storage)
        self._stack.callback(self.disk.close)
