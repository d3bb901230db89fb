"""`ahbm astra`: ASTRA-sim's command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ahbm.cli.app import Command, app
from ahbm.cli.options import Graphs, Json, Limits

SWITCH = "--rendezvous-protocol"
FILES = (
    "--workload-configuration job --system-configuration system.json --network-configuration network.yml "
    "--remote-memory-configuration memory.json"
)


class Seat(Command):
    """ASTRA-sim takes its switch alone, with a value behind it, and with `=`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spelled: list[str] = []
        for at, arg in enumerate(args):
            spelled.append(arg)
            following = args[at + 1] if at + 1 < len(args) else "-"
            if arg == SWITCH and following.startswith("-"):
                spelled.append("true")
        return super().parse_args(ctx, spelled)


def _file(name: str, about: str) -> Any:
    return typer.Option(f"--{name}-configuration", metavar="FILE", help=about)


@app.command(
    cls=Seat,
    page="astra",
    examples=(
        f"ahbm astra --parity {FILES}",
        f"ahbm astra --parity --backend congestion_aware --json {FILES}",
        f"ahbm astra {FILES}",
    ),
)
def astra(
    *,
    workload: Annotated[Path, typer.Option("--workload-configuration", metavar="PREFIX", help="PREFIX.<rank>.et.")],
    system: Annotated[Path, _file("system", "System JSON.")],
    network: Annotated[Path, _file("network", "Network YAML.")],
    memory: Annotated[Path, _file("remote-memory", "Remote memory JSON.")],
    groups: Annotated[str, _file("comm-group", "Process groups JSON, or empty.")] = "empty",
    parity: Annotated[bool, typer.Option("--parity", help="ASTRA-sim's numbers, to the nanosecond.")] = False,
    backend: Annotated[
        str, typer.Option("--backend", help="Parity: congestion_unaware or congestion_aware.")
    ] = "congestion_unaware",
    queues: Annotated[
        int, typer.Option("--num-queues-per-dim", min=1, max=1 << 16, help="Parity: queues of a dimension.")
    ] = 1,
    comm_scale: Annotated[float, typer.Option("--comm-scale", help="Changes no number.")] = 1.0,
    compute_scale: Annotated[float, typer.Option("--compute-scale", help="Changes no number.")] = 1.0,
    injection_scale: Annotated[
        float, typer.Option("--injection-scale", help="Parity: factor of endpoint-delay.")
    ] = 1.0,
    graphs: Graphs = None,
    rendezvous: Annotated[
        str, typer.Option(SWITCH, metavar="true|false", help="Parity: 8192 bytes ask for each message.")
    ] = "false",
    logging_configuration: Annotated[str, _file("logging", "Changes no number.")] = "empty",
    logging_folder: Annotated[str, typer.Option("--logging-folder", help="Changes no number.")] = "log",
    limits: Limits = None,
    as_json: Json = False,
) -> None:
    """Run an ASTRA-sim set-up: its numbers, or its job on a machine with real algorithms."""
    from ahbm.config.reading import parse_limits
    from ahbm.job import astra as seat

    given_graphs = tuple(graphs or ())
    files = seat.AstraFiles(
        workload=workload, system=system, network=network, memory=memory, groups=groups, graphs=given_graphs
    )
    flags = seat.AstraFlags(
        backend=backend, queues=queues, injection_scale=injection_scale, rendezvous=seat.truth(rendezvous)
    )
    allowed = parse_limits(limits or ())
    given = {
        "--comm-scale": comm_scale != 1.0,
        "--compute-scale": compute_scale != 1.0,
        "--logging-configuration": logging_configuration != "empty",
        "--logging-folder": logging_folder != "log",
    }
    if parity:
        idle = [name for name, stated in given.items() if stated]
        report = seat.simulate(files, flags, times=as_json, limits=allowed, idle=idle)
        typer.echo(json.dumps(report.to_json()) if as_json else str(report))
        report.raise_findings()
        return
    from ahbm.job.astra_machine import read_setup, replay

    given |= {
        "--backend": backend != "congestion_unaware",
        "--num-queues-per-dim": queues != 1,
        "--injection-scale": injection_scale != 1.0,
        SWITCH: flags.rendezvous,
    }
    replayed = replay(files, read_setup(files, allowed), allowed, [name for name, stated in given.items() if stated])
    typer.echo(json.dumps(replayed.to_json()) if as_json else str(replayed))
