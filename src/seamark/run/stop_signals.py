"""Turns SIGINT, SIGTERM and a closed terminal's SIGHUP into an orderly stop of the job, even if
they reach the Spark JVM alone.

A handler runs in the main thread at an arbitrary point: the thread may hold the very lock needed by
the stop. So the handler only puts into a queue, which is safe anywhere.

Under spark-submit the JVM is the parent of the Python program. A SIGTERM to spark-submit reaches
the JVM alone, but a Ctrl-C in its terminal reaches both. The JVM then runs its shutdown hooks,
Spark's own among them. The hook here runs first. It passes the stop on to the job, and delays the
other hooks until the job has settled; until then Spark works as always.
"""

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue

from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

PATIENCE_S = 30
"""How long the JVM waits for the job. Cluster managers kill a driver about then."""

_STOP_S = 30.0
"""How long PySpark may take from the end of Java's context to that of its own."""
_BEFORE_SPARK = 100
"""Priority among Hadoop's shutdown hooks; Spark's is 40, those of file systems 10."""


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Within the block, each SIGINT and SIGTERM calls `stop` from another thread, and so does each
    SIGHUP, unless nohup or the program has it handled otherwise. Outside the main thread, where
    Python has no signals, it does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: SimpleQueue[int] = SimpleQueue()
    left, program = 0, os.getpid()

    def wait() -> None:
        while received.get() != left:
            stop()

    def handle(number: int, _: object) -> None:
        if os.getpid() == program:
            received.put(number)
        else:  # a process that the program has forked, such as one of a pool
            signal.signal(number, before[number])
            signal.raise_signal(number)

    threading.Thread(target=wait, name="seamark-signals", daemon=True).start()
    numbers: list[int] = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        numbers.append(signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        received.put(left)


def program_has_ended() -> bool:
    """Tell whether the main thread has ended, and so has every other thread of the program's for
    which the interpreter waits."""
    return not any(
        thread.is_alive() and not thread.daemon and not thread.name.startswith("seamark-")
        for thread in threading.enumerate()
    )


def stopped_by_program(spark: SparkSession) -> bool:
    """Tell whether the program has called ``spark.stop()``, which ends its queries too. A context
    that Java has ended, as for an application that its cluster kills, is not the program's doing:
    PySpark keeps that one."""
    context = spark.sparkContext
    try:
        deadline = time.monotonic() + _STOP_S
        while (java := context._jsc) is not None and java.sc().isStopped():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)  # PySpark drops it once Java has stopped
    except (Py4JError, OSError):  # the JVM has ended
        return False
    return java is None


class _Stop:
    """A ``java.lang.Runnable``, called by the JVM when it ends."""

    def __init__(self, stop: Callable[[], None], left: threading.Event) -> None:
        self._stop = stop
        self._left = left

    def run(self) -> None:
        """Stop the job, then wait until the block has been left, for PATIENCE_S at most."""
        self._stop()
        self._left.wait(PATIENCE_S)

    class Java:
        implements = ["java.lang.Runnable"]


@contextlib.contextmanager
def stop_before_jvm(spark: SparkSession, stop: Callable[[], None]) -> Iterator[None]:
    """Within the block, a JVM told to end calls `stop` from another thread. It lives on until the
    block has been left, for PATIENCE_S at most."""
    left = threading.Event()
    jvm = spark._jvm
    ensure_callback_server_started(spark.sparkContext._gateway)
    # The Java task around the Python object can be removed and disarmed without calling Python.
    task = jvm.java.util.concurrent.FutureTask(_Stop(stop, left), None)
    hooks = jvm.org.apache.hadoop.util.ShutdownHookManager.get()
    seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
    hooks.addShutdownHook(task, _BEFORE_SPARK, PATIENCE_S, seconds)
    try:
        yield
    finally:
        left.set()
        try:
            task.cancel(False)
            hooks.removeShutdownHook(task)
        except (Py4JError, OSError) as error:  # the JVM is ending, or has ended
            log.debug("the JVM's shutdown hook stays: %s", error)
