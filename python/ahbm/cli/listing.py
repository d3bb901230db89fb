"""`ahbm list`, `ahbm topology`, `ahbm probe`: what there is and what it can do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ahbm.cli import completion
from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import Ccl, Json, Machine, Place
from ahbm.cli.output import show, table
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm._core import Machine as CoreMachine


@app.command(
    page="machine-model",
    examples=(
        "ahbm probe -t npu_ring_8",
        "ahbm probe --ranks 4 --json",
    ),
)
@grouped
def probe(*, machine: Machine, as_json: Json = False) -> None:
    """Latency and bandwidth of reference traffic patterns, each alone on the machine."""
    from ahbm.core.emulator import Emulator
    from ahbm.runs import probe as p

    emulator = Emulator.load(machine.topology, machine.ccl, machine.overrides)
    samples = list(p.measure(emulator.machine, emulator.settings().queues))
    note = p.note(emulator.machine)
    if as_json:
        typer.echo(json.dumps([sample.to_json() for sample in samples], indent=2))
        typer.echo(f"note: {note}\n" if note else "", nl=False, err=True)
        return
    rows = table("kind", "place", ">size (B)", ">time (ns)", ">GB/s", title="simulated, one pattern alone")
    for sample in samples:
        rows.add_row(
            sample.kind,
            sample.pattern,
            str(sample.bytes),
            f"{sample.latency_ns:.2f}",
            "-" if sample.bandwidth_gbs is None else f"{sample.bandwidth_gbs:.2f}",
            end_section=sample.bytes == p.SIZES[-1],
        )
    show(rows)
    typer.echo(f"note: {note}\n" if note else "", nl=False)


@app.command(
    "list",
    page="quick-start",
    examples=(
        "ahbm list",
        "ahbm list algorithms --json",
    ),
)
def list_(
    what: Annotated[
        str | None,
        typer.Argument(help="algorithms, topologies, collectives or methods (of synthesis); all without it."),
    ] = None,
    ccl: Ccl = None,
    as_json: Json = False,
) -> None:
    """List what there is to run."""
    from ahbm.base.collectives import COLLECTIVES
    from ahbm.config import topology
    from ahbm.config.ccl import CclConfig
    from ahbm.errors import AhbmError
    from ahbm.source.algorithm import listed
    from ahbm.source.located import available

    def algorithms() -> list[dict[str, str]]:
        config = CclConfig.load(ccl)
        found = []
        for name in sorted({*config.algorithms, *available()}):
            try:
                names, source = listed(config.settings(name))
            except AhbmError as error:
                names, source = ("-",), f"{error.code} {error.message}"
            found.append({"algorithm": name, "collective": ", ".join(names), "source": source})
        return found

    def collectives() -> list[dict[str, str]]:
        config = CclConfig.load(ccl)
        return [{"collective": name, "algorithm": config.described(name)} for name in COLLECTIVES]

    def topologies() -> list[dict[str, str]]:
        return [{"topology": name, "kind": "file"} for name in (topology.DEFAULT, *topology.names())] + [
            {"topology": name, "kind": "SIP network"} for name in topology.NETWORKS
        ]

    def methods() -> list[dict[str, str]]:
        from ahbm._core import Schedule

        return [
            {"method": name, "kind": "closed form" if closed else "search", "about": about}
            for name, about, closed in Schedule.method_table()
        ]

    kinds: dict[str, Callable[[], list[dict[str, str]]]] = {
        "algorithms": algorithms,
        "topologies": topologies,
        "collectives": collectives,
        "methods": methods,
    }
    if what is not None and what not in kinds:
        raise ConfigError("AHBM-C145", f"cannot list {what!r}", hint=f"one of {', '.join(kinds)}")
    found = {kind: rows() for kind, rows in kinds.items() if what in (None, kind)}
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for rows in found.values():
        listing = table(*rows[0])
        for row in rows:
            listing.add_row(*map(_short, row.values()))
        show(listing)


def _facts(machine: CoreMachine) -> dict[str, object]:
    from ahbm.core.spec import machine_name

    return {
        "machine": machine_name(machine),
        "machine_hash": f"{machine.hash:016x}",
        "topology": machine.topology,
        "sips": machine.sips,
        "grid": [machine.sip_w, machine.sip_h, machine.sip_d],
        "cubes_per_sip": machine.cubes,
        "cube_grid": [machine.cube_w, machine.cube_h],
        "pes_per_cube": machine.pes,
        "slot_tiers": machine.tiers,
        "switch_reduces": machine.switch_reduces,
        "links_between_sips": machine.links_between_sips(),
        "overrides": dict(machine.overrides),
        "assumed": machine.assumed,
    }


def _short(cell: str) -> str:
    """A path as it is written here: a packaged one is `packaged`, one below this folder is relative to it."""
    from ahbm.base import packaged

    path = Path(cell)
    if not path.is_absolute():
        return cell
    if path.is_relative_to(packaged.ROOT):
        return "packaged"
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else cell


@app.command(
    "topology",
    page="machine-model",
    examples=(
        "ahbm topology npu_torus_4x4 --svg torus.svg",
        "ahbm topology -t hypercube --ranks 16 --json",
        "ahbm topology dgx_h100 --set system.sips.link.bandwidth_gbs=600 -o mine.yaml",
        "ahbm topology npu_torus_4x4 -o torus.json --format infragraph",
    ),
)
@grouped
def topology_(
    name: Annotated[
        str | None,
        typer.Argument(autocompletion=completion.topologies, help="As -t: packaged topology, path, or SIP network."),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Draw it into this file, whose name ends in .svg.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write a topology.yaml that stands on it, to be changed."),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="What -o writes: infragraph, a graph of devices (.json, .yaml)."),
    ] = None,
    *,
    place: Place,
    as_json: Json = False,
) -> None:
    """Describe a machine, draw it, or write a file of your own that stands on it."""
    from ahbm.base.store import store
    from ahbm.config.based import text_of
    from ahbm.config.topology import load_machine, name_of, text_for

    if name is not None:
        if place.topologies:
            raise ConfigError(
                "AHBM-C146", f"{name} and -t {place.topologies[0]} are both given", hint="give one of them"
            )
        place = replace(place, topologies=[name])
    machine = load_machine(place.topology, place.overrides)
    if svg is not None:
        if svg.suffix != ".svg":
            hint = f"--svg {svg.stem or 'machine'}.svg"
            raise ConfigError("AHBM-C141", f"{svg} does not end in .svg: the drawing is SVG", hint=hint)
        try:
            store({svg: machine.svg().encode()})
        except OSError as error:
            raise ConfigError("AHBM-C141", f"cannot write {svg}: {error.strerror}") from error
    if format_ not in (None, "infragraph") or (format_ is not None and output is None):
        raise ConfigError(
            "AHBM-C141", f"--format {format_}: what -o FILE writes is infragraph", hint="-o FILE --format infragraph"
        )
    if output is not None and format_ is not None:
        from ahbm.config.graph_written import text_of_graph

        if output.suffix not in (".json", ".yaml", ".yml"):
            hint = f"-o {output.stem}.json"
            raise ConfigError("AHBM-C141", f"{output} ends in neither .json nor .yaml", hint=hint)
        graph = text_of_graph(machine, Path(name_of(machine)).stem, output.suffix == ".json")
        try:
            store({output: graph.encode()})
        except OSError as error:
            raise ConfigError("AHBM-C141", f"cannot write {output}: {error.strerror}") from error
        typer.echo(f"graph: {output}", err=as_json)
    elif output is not None:
        if output.suffix not in (".yaml", ".yml"):
            raise ConfigError(
                "AHBM-C141", f"{output} does not end in .yaml: a machine is YAML", hint=f"-o {output.stem}.yaml"
            )
        base = name_of(machine)
        if base.endswith((".yaml", ".yml")):
            base = os.path.relpath(base, output.parent)
            base = base if "/" in base else f"./{base}"
        try:
            text = text_for(machine) or text_of(base, dict(machine.overrides))
            store({output: text.encode()})
        except OSError as error:
            raise ConfigError("AHBM-C141", f"cannot write {output}: {error.strerror}") from error
        typer.echo(f"machine: {output}", err=as_json)
    typer.echo(json.dumps(_facts(machine), indent=2) if as_json else machine.describe())
