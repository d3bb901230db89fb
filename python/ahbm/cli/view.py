"""`ahbm view`: a run in the browser, changed while it is looked at."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from ahbm.cli import completion
from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import Machine, Size
from ahbm.errors import ConfigError


@app.command(
    page="view",
    examples=(
        "ahbm view -t npu_torus_4x4",
        "ahbm view algorithms --size 64K",
        "ahbm view step -t dgx_h100",
    ),
)
@grouped
def view(
    target: Annotated[
        Path | None,
        typer.Argument(
            help="An algorithm's module, a plan, a job; or a folder with modules, this one by default.",
            show_default=False,
        ),
    ] = None,
    *,
    collective: Annotated[
        str, typer.Option("--collective", autocompletion=completion.collectives, help="Algorithms: what to compute.")
    ] = "all_reduce",
    size: Size = "64K",
    machine: Machine,
    host: Annotated[str, typer.Option("--host", help="A loopback address; no other is taken.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any that is free.")] = 8765,
) -> None:
    """Serve a page for this machine alone: sliders for the machine, an editor for the algorithm, and its timeline.

    It prints an address with a token; without that nobody is answered. Ctrl-C ends it.
    """
    from ahbm.base.collectives import require_collective
    from ahbm.base.sizes import parse_size
    from ahbm.views import live, server

    address = server.loopback(host)
    server.require_extra()
    require_collective(collective)
    (place,) = machine.places() if len(machine.places()) == 1 else _refuse_several()
    items = live.found_in(target, collective, place.topology)
    if not items:
        raise ConfigError("AHBM-C144", f"nothing here performs {collective}")
    bench = live.Bench(items, collective, place.topology, place.overrides, parse_size(size or "64K"))
    bench.values()
    listener, token = server.listening(address, port), secrets.token_urlsafe(24)
    typer.echo(f"open {server.address_of(listener, token)}")
    server.serve(bench, listener, token)


def _refuse_several() -> tuple[Machine]:
    raise ConfigError("AHBM-C146", "ahbm view is about one machine", hint="give one -t and no lists of values")
