"""`seamark dev`: real servers on this machine, for development."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from seamark.dev.kafka import LocalKafka

dev = typer.Typer(help="Real servers on this machine, for development.", no_args_is_help=True)


@dev.command("kafka")
def dev_kafka(
    brokers: Annotated[int, typer.Option(help="1, or a cluster of 3.")] = 1,
    directory: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Keep the data (and the ports) here for the next time; default: keep nothing.",
        ),
    ] = None,
) -> None:
    """Start Kafka on 127.0.0.1, print its bootstrap address, and stop it at Ctrl-C.

    The first start fetches the brokers' jars from Maven (45 MB). Only the address goes to stdout.
    """
    import logging

    from seamark.dev.kafka import run_local_kafka

    logging.basicConfig(level=logging.INFO, format="%(message)s")  # downloads and their places
    run_local_kafka(brokers, directory, _announce)


def _announce(kafka: LocalKafka) -> None:
    typer.echo(f"Kafka: {kafka.brokers} broker(s), data in {kafka.directory}", err=True)
    typer.echo("bootstrap servers (Ctrl-C stops them):", err=True)
    typer.echo(kafka.bootstrap_servers)
