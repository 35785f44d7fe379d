"""Asks Java in few messages: py4j's plain ways are slow where it matters."""

from collections.abc import Callable, Iterable
from typing import Any

from py4j.java_gateway import JavaClass, quiet_shutdown


def java_class(jvm: Any, name: str) -> Any:
    """Return the class of this full name. For ``jvm.java.util.ArrayList`` Java would search its
    whole path for a class of each part's name."""
    return JavaClass(name, jvm._gateway_client)


def java_list(jvm: Any, items: Iterable[Any]) -> Any:
    """Return a new ``java.util.ArrayList`` of the items."""
    made = java_class(jvm, "java.util.ArrayList")()
    for item in items:
        made.add(item)
    return made


def items_of(java_list: Any) -> list[Any]:
    """Return the items of a ``java.util.List``. py4j's own iteration ends with an exception;
    PySpark then asks Java so much about it that every loop takes 15 ms."""
    return [java_list.get(number) for number in range(java_list.size())]


def hang_up_of(jvm: Any) -> Callable[[], object]:
    """Return what ends the connection of this thread, which a Java thread calls, and so this
    thread, once the Java thread has ended: py4j keeps both until the gateway is closed. Without
    ``PYSPARK_PIN_THREAD`` Java's threads share connections, and nothing is to be ended."""
    if (of_this_thread := getattr(jvm._gateway_client, "get_thread_connection", None)) is None:
        return bool
    connection = of_this_thread()
    return lambda: quiet_shutdown(connection.socket)


def root_cause(error: BaseException) -> str:
    """Return Java's message about an error, without the trace."""
    java = getattr(error, "java_exception", None)
    if java is None:
        return str(error).strip().split("\n", 1)[0]
    while java.getCause() is not None:
        java = java.getCause()
    return str(java.toString()).strip().split("\n", 1)[0]
