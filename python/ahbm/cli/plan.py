"""`ahbm plan`: which way of cutting a model over many ranks is the quickest that fits."""

from __future__ import annotations

import json
from functools import partial
from math import isfinite
from os.path import isfile
from pathlib import Path
from typing import Annotated, Any

import typer

from ahbm.cli import progress
from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import Json, Place, parse_ranks
from ahbm.errors import ConfigError

MOST = 1 << 17
"""Ranks, stages or sequences that a plan tries."""


def _list(about: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(metavar="N,...", help=about)
    return option


@app.command(
    page="plan",
    examples=(
        "ahbm plan gpt2 -t dgx_h100 --ranks 2 --batch 4 --micro-batch 1 --recompute none",
        "ahbm plan gpt2 -t p5 --ranks 4 --batch 8 --tp 1,2 --pp 1 --micro-batch 2 --price-per-hour 2.5",
    ),
)
@grouped
def plan(
    model: Annotated[
        str, typer.Argument(help="A public model, a YAML file with its numbers, or a script that trains it.")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Of the script; those that begin with - behind --.", show_default=False)
    ] = None,
    *,
    place: Place,
    batch: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Sequences of a step, of all ranks; else one for each rank."),
    ] = None,
    tp: Annotated[str | None, _list("Tensor-parallel ranks to try.")] = None,
    pp: Annotated[str | None, _list("Pipeline stages to try.")] = None,
    virtual_stages: Annotated[str | None, _list("Virtual stages to try.")] = None,
    schedule: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Orders of micro-batches to try: 1f1b, zb1, zbv, dualpipev.")
    ] = None,
    cp: Annotated[str | None, _list("Context-parallel ranks to try.")] = None,
    ep: Annotated[str | None, _list("Expert-parallel ranks to try.")] = None,
    zero: Annotated[str | None, _list("What is sharded: 0, 1, 2 or 3.")] = None,
    micro_batch: Annotated[str | None, _list("Sequences of a micro-batch to try.")] = None,
    recompute: Annotated[
        str | None, typer.Option(metavar="WHAT,...", help="What is computed again: none, selective, full.")
    ] = None,
    memory_gib: Annotated[
        float | None, typer.Option("--memory-gib", min=0.001, help="Memory of a rank; else that of the machine.")
    ] = None,
    price_per_hour: Annotated[
        float | None,
        typer.Option("--price-per-hour", min=0, help="Of one rank: tells the cost of a million tokens."),
    ] = None,
    store: Annotated[Path | None, typer.Option("--store", help="A folder for what was measured.")] = None,
    processes: Annotated[int | None, typer.Option("-j", "--jobs", min=1, help="Processes that share the work.")] = None,
    as_json: Json = False,
) -> None:
    """Search the ways of cutting a model over many ranks: the quickest that fit, and what limits each."""
    from ahbm.base.host import processors
    from ahbm.job.models import like, names
    from ahbm.job.transformer import read_manifest
    from ahbm.planning.candidates import Choices
    from ahbm.planning.search import search

    if place.ranks is None:
        raise ConfigError("AHBM-C146", "ahbm plan divides a model over ranks", hint="--ranks 64")
    if memory_gib is not None and not isfinite(memory_gib):
        raise ConfigError("AHBM-C146", f"--memory-gib {memory_gib}: no rank has so much", hint="80")
    scripted = model.endswith(".py") and isfile(model)
    if scripted:
        from ahbm.planning.script import trained

        values = trained(model, arguments or (), place.topology)
        batch = batch or ranks_of(place) * values["micro_batch"]
    elif arguments:
        raise ConfigError("AHBM-C146", f"{model} is no script: it takes no arguments", hint="ahbm plan train.py ...")
    else:
        values = like(model) if model in names() or not isfile(model) else read_manifest(model)
    numbers: dict[str, str | None] = {
        "tp": tp,
        "pp": pp,
        "virtual_stages": virtual_stages,
        "cp": cp,
        "ep": ep,
        "zero": zero,
        "micro_batch": micro_batch,
    }
    limits: dict[str, Any] = {name: _numbers(name, text) for name, text in numbers.items() if text is not None}
    limits |= {"recompute": recompute.split(",")} if recompute is not None else {}
    limits |= {"schedule": schedule.split(",")} if schedule is not None else {}
    choices = Choices(**limits)
    found = search(
        values,
        ranks_of(place),
        topology=place.topology,
        overrides=place.overrides,
        batch=batch,
        choices=choices,
        capacity=None if memory_gib is None else int(memory_gib * 2**30),
        price_per_hour=price_per_hour,
        store=store,
        jobs=processors() if processes is None else processes,
        progress=partial(progress.at, lines=True),
    )
    progress.clear()
    if as_json:
        typer.echo(json.dumps({"model": values, **found.plain()} if scripted else found.plain()))
        return
    if scripted:
        typer.echo(f"{model}: {', '.join(f'{name} {str(value).lower()}' for name, value in values.items())}")
    typer.echo(str(found))


def ranks_of(place: Place) -> int:
    """The number of ranks. Raises ConfigError: AHBM-C162 for what is none, C146 for several."""
    counts = parse_ranks(place.ranks)
    if len(counts) != 1:
        raise ConfigError("AHBM-C146", "--ranks: a search is for one number of ranks")
    return counts[0]


def _numbers(name: str, text: str) -> list[int]:
    """Raises ConfigError (AHBM-C146) for what are no numbers, or none of a plan."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all((0 if name == "zero" else 1) <= number <= MOST for number in found):
        raise ConfigError("AHBM-C146", f"--{name.replace('_', '-')} {text[:40]}: no numbers of a plan", hint="1,2,4")
    return found
