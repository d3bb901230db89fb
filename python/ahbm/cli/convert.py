"""`ahbm convert`: one format of algorithms into another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ahbm.cli.app import app
from ahbm.cli.options import Frontend, Json, Limits, Program, Quirks, output_option
from ahbm.cli.targets import Targeted, arguments_of
from ahbm.errors import ConfigError


@app.command(
    cls=Targeted,
    page="imports",
    examples=(
        "ahbm convert plan.xml plan.json",
        "ahbm convert plan.xml trace.et --size 1M",
    ),
)
def convert(
    context: typer.Context,
    source: Annotated[
        Path,
        typer.Argument(help="An algorithm: .xml, .json, a Chakra trace by its prefix, or a script and its arguments."),
    ],
    target: Annotated[
        Path | None, typer.Argument(help="What to write: .xml, .json, or PREFIX.et for PREFIX.<rank>.et.")
    ] = None,
    output: Annotated[Path | None, output_option("What to write, behind a script.")] = None,
    size: Annotated[
        str | None, typer.Option("-b", "--bytes", "--size", help="Traces: the size that comm_size states; about 1M.")
    ] = None,
    link_order: Annotated[
        bool, typer.Option("--link-order", help="Traces: order the sends of every link by control dependencies.")
    ] = False,
    slots: Annotated[
        int | None,
        typer.Option("--slots", min=1, max=2**32 - 2, help="Execution plans: messages a queue holds; as runtimes, 2."),
    ] = None,
    quirks: Quirks = False,
    limits: Limits = None,
    program: Program = None,
    frontend: Frontend = None,
    as_json: Json = False,
) -> None:
    """Convert an algorithm between MSCCL-IR (.xml), MSCCL++ execution plans (.json) and Chakra traces (.et)."""
    from ahbm.config.reading import parse_limits
    from ahbm.dsl.script import Script, imports_language
    from ahbm.runs import plans
    from ahbm.runs.bench import parse_size
    from ahbm.source.plan import SLOTS

    wanted = target or output
    if wanted is None or (target and output):
        raise ConfigError("AHBM-C146", "convert writes one file", hint=f"ahbm convert {source} -o plan.json")
    paths = plans.convert(
        Script(str(source), arguments_of(context), program, frontend) if imports_language(source) else source,
        wanted,
        nbytes=parse_size(size) if size else None,
        link_order=link_order,
        slots=slots or SLOTS,
        quirks=quirks,
        limits=parse_limits(limits or ()),
    )
    if as_json:
        typer.echo(json.dumps({"files": [str(path) for path in paths]}))
        return
    total = sum(path.stat().st_size for path in paths)
    files = f"{paths[0]}" if len(paths) == 1 else f"{paths[0]} to {paths[-1].name}, {len(paths)} files"
    typer.echo(f"{files}: {total} bytes")
