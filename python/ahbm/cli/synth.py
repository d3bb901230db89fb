"""`ahbm synth`: schedules with a certificate."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from ahbm.cli import completion, progress
from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import Dtype, Json, NoData, Op, Place, Root, output_option

SEARCHED = ("greedy", "routed")
"""The methods that try in an order that a seed gives."""


@app.command(
    page="synthesis",
    examples=(
        "ahbm synth all_gather -t npu_ring_8 --size 1M -o plan.xml",
        "ahbm synth all_reduce -t npu_mesh_4x4 --size 1M --method auto --run",
    ),
)
@grouped
def synth(
    collective: Annotated[
        str,
        typer.Argument(
            autocompletion=completion.collectives, help="all_reduce, all_gather, reduce_scatter, broadcast, ..."
        ),
    ],
    size: Annotated[
        str | None, typer.Option("-b", "--bytes", "--size", help="Size of an NPU's whole buffer: 64M.")
    ] = None,
    chunk_bytes: Annotated[str | None, typer.Option("--chunk-bytes", help="Size of a chunk, instead.")] = None,
    chunks: Annotated[int, typer.Option("-k", "--chunks", help="Chunks of one share; trees choose their own.")] = 1,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            help="auto, or a name of `ahbm list methods`.",
        ),
    ] = "auto",
    members: Annotated[
        str | None, typer.Option("--members", help="NPUs that take part, by rank: 0,2,5. The others relay.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the search.")] = 0,
    execute: Annotated[bool, typer.Option("--run", help="Run the schedule on the emulator, too.")] = False,
    output: Annotated[Path | None, output_option("Write the plan, of equal chunks: .xml, .json or .et.")] = None,
    dtype: Dtype = "f16",
    op: Op = "sum",
    root: Root = 0,
    no_data: NoData = False,
    *,
    place: Place,
    as_json: Json = False,
) -> None:
    """Synthesize a schedule for a network of NPUs, and say how close to the limit it is."""
    from ahbm.base.collectives import COLLECTIVES
    from ahbm.base.elements import parse_dtype
    from ahbm.base.sizes import parse_size
    from ahbm.base.words import IDLE
    from ahbm.config.reading import MSCCLPP
    from ahbm.errors import ConfigError
    from ahbm.source.located import refuse_kernel
    from ahbm.source.synthesis import synthesize

    refuse_kernel(collective)
    if members is not None and not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", members):
        raise ConfigError("AHBM-C152", f"--members {members}: no list of NPUs", hint="--members 0,2,5")
    progress.at(f"synthesizing {collective}, method {method}")
    found = synthesize(
        collective,
        topology=place.topology,
        overrides=place.overrides,
        size=parse_size(size) if size else None,
        chunk_bytes=parse_size(chunk_bytes) if chunk_bytes else None,
        chunks=chunks,
        dtype=parse_dtype(dtype),
        op=op,
        root=root,
        method=method,
        seed=seed,
        members=[int(npu) for npu in members.split(",")] if members else (),
    )
    progress.clear()
    written: list[Path] = []
    if output is not None:
        found = found.even(output)
        written = found.save(output)
    ran = found.run(data=not no_data) if execute else None
    kind = COLLECTIVES[collective]
    idle = [
        f"{what} {IDLE}"
        for what, is_idle in (
            (f"{collective} has no root: root {root}", root and not kind.rooted),
            (f"{collective} reduces nothing: {op}", op != "sum" and not kind.reduces),
            (f"{found.schedule.method} searches nothing: seed {seed}", seed and found.schedule.method not in SEARCHED),
            ("without --run no data move: --no-data", no_data and not execute),
        )
        if is_idle
    ]
    if as_json:
        from dataclasses import asdict

        emulated = {"emulated": asdict(ran)} if ran else {}
        files = {"files": [str(path) for path in written]} if written else {}
        notes = {"notes": idle} if idle else {}
        typer.echo(json.dumps(found.to_json() | emulated | files | notes, indent=2))
    else:
        typer.echo(str(found))
        if ran is not None:
            checked = "not checked" if ran.wrong is None else f"{ran.wrong} wrong"
            by = f", protocol {ran.protocol}" if ran.protocol else ""
            typer.echo(f"  emulated    {ran.time_ps / 1e6:,.3f} us, {ran.messages} messages, {checked}{by}")
        for note in [*idle, *([found.mismatch] if ran is not None and found.mismatch else [])]:
            typer.echo(f"  note        {note}")
        for path in written:
            typer.echo(f"  written     {path}, for {found.nbytes} B")
        if output is not None and not members:
            options = {"-t": place.topology, "--ranks": place.ranks, "--size": found.nbytes, "-d": dtype, "--op": op}
            command = ["ahbm", "run", str(output)]
            command += [text for key, value in options.items() if value is not None for text in (key, str(value))]
            if output.suffix != MSCCLPP:
                command += ["--slots", "inf", "--slice", "inf"]
            pes = [] if found.matches else [found.to_match]
            command += [text for setting in [*(place.settings or ()), *pes] for text in ("--set", setting)]
            typer.echo(f"  takes this  {shlex.join(command)}")
    if ran is not None and ran.wrong:
        from ahbm.errors import DataError

        raise typer.Exit(DataError.exit_code)
