"""`ahbm explain`: why a run takes as long as it does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ahbm.cli.app import app
from ahbm.cli.options import Ccl, Dtype, Json, Op, Root, Settings, Topology, parse_overrides, parse_slots
from ahbm.errors import ConfigError


@app.command()
def explain(
    plan: Annotated[Path | None, typer.Argument(help="A plan (.xml, .json, .et); without, --collective.")] = None,
    collective: Annotated[str | None, typer.Option("--collective", help="Explain this collective.")] = None,
    algorithm: Annotated[str | None, typer.Option("-a", "--algorithm", help="Name, or path of a module.")] = None,
    size: Annotated[
        str | None, typer.Option("-b", "--bytes", "--size", help="Size of one rank's array: 256, 64K, 1M.")
    ] = None,
    slots: Annotated[str | None, typer.Option("--slots", help="Plans: messages a queue holds, or inf.")] = None,
    protocol: Annotated[str | None, typer.Option("--protocol", help="Plans: Simple, LL or LL128.")] = None,
    instances: Annotated[int | None, typer.Option("--instances", min=1, help="Plans: parallel copies.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Every stretch of the critical path too.")] = False,
    dtype: Dtype = "f16",
    op: Op = "sum",
    root: Root = 0,
    topology: Topology = None,
    ccl: Ccl = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Say what the latency of a collective or plan consists of: its critical path, by category and source line."""
    import ahbm
    from ahbm import plans
    from ahbm.bench import parse_dtype, parse_size

    overrides = parse_overrides(settings)
    if (plan is None) == (collective is None):
        raise ConfigError(
            "AHBM-C143",
            "give either a plan or --collective",
            hint="ahbm explain --collective all_reduce --bytes 64K, or ahbm explain plan.xml --size 1M",
        )
    if plan is not None:
        if size is None or algorithm is not None or root != 0:
            raise ConfigError("AHBM-C146", f"a plan is explained as `ahbm explain {plan} --size 1M`")
        depth = parse_slots(slots)
        collective, algorithm, root, entry = plans.as_algorithm(
            plan, slots=depth, protocol=protocol, instances=instances or 1
        )
        overrides |= entry
    elif (slots, protocol, instances) != (None, None, None):
        raise ConfigError("AHBM-C146", "--slots, --protocol and --instances are for plans")
    explanation = ahbm.explain(
        collective or "all_reduce",
        algorithm,
        topology,
        bytes_per_rank=parse_size(size) if size else None,
        dtype=parse_dtype(dtype),
        overrides=overrides,
        op=op,
        root=root,
        ccl=ccl,
    )
    if as_json:
        typer.echo(json.dumps(explanation.to_json(full), indent=2))
        return
    typer.echo(str(explanation))
    if full:
        typer.echo("the critical path from launch to end:")
        for s in explanation.stretches():
            on = f" on {s.link}" if s.link else ""
            typer.echo(
                f"  {s.start_ps / 1000:>14,.3f} .. {s.end_ps / 1000:<14,.3f} {s.category}{on}: "
                f"{s.place}, {s.what} {s.origin}".rstrip()
            )
