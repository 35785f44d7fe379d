"""`seamark dashboard`."""

from __future__ import annotations

from typing import Annotated

import typer

from seamark.cli import options


def dashboard(
    storage: options.Storage = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = 8084,
    verbose: options.Verbose = 0,
) -> None:
    """Show the jobs of a storage in the browser, running or ended, until Ctrl-C.

    Prints the address. Everybody on this machine may look; only holders of the token, behind the #
    of the address, can change a job.
    """
    from seamark.dashboard.server import run_dashboard
    from seamark.operations.storage import storage_of

    run_dashboard(storage_of("dashboard", storage), port, _announce)


def _announce(address: str) -> None:
    typer.echo("dashboard (Ctrl-C ends it):", err=True)
    typer.echo(address)
