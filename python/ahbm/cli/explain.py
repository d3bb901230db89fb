"""`ahbm explain`: why a run takes as long as it does."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ahbm.base.codes import explained, is_code
from ahbm.cli import completion
from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import Asked, Json, parse_what_if
from ahbm.cli.targets import Targeted, arguments_of

WhatIf = Annotated[
    list[str] | None,
    typer.Option(
        "--what-if",
        metavar="KEY=VALUE",
        help="The time with this change of the machine too; 2x is twice the value. all simulates every change that may "
        "help, however long that takes, none simulates none. Repeatable.",
        show_default=False,
    ),
]


@app.command(
    cls=Targeted,
    page="explain",
    examples=(
        "ahbm explain all_reduce -t npu_ring_8 --size 64K",
        "ahbm explain plan.xml --size 1M --json",
        "ahbm explain all_gather --what-if system.sips.link.latency_ns=0.5x",
        "ahbm explain AHBM-K209",
    ),
)
@grouped
def explain(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            help="all_reduce, all_gather, ...; a plan (.xml, .json, .et); a script that lowers one, with its "
            "arguments; or an error code.",
            autocompletion=completion.explainable,
            show_default=False,
        ),
    ],
    *,
    asked: Asked,
    what_if: WhatIf = None,
    full: Annotated[bool, typer.Option("--full", help="Every stretch of the critical path too.")] = False,
    as_json: Json = False,
) -> None:
    """Say why a collective or plan takes as long as it does, by category and source line; or what an error code means.

    The critical path from launch to end adds up to the latency, to the picosecond.
    """
    if is_code(target):
        answer = explained(target)
        typer.echo(json.dumps(answer._asdict(), indent=2) if as_json else str(answer))
        return
    budget, changes = parse_what_if(what_if)
    opened = asked.open(target, args=arguments_of(context))
    ran = opened.run(data=False)
    explanation, choice = ran.explain(), opened.choice()
    advice = [explanation.what_if(change) for change in changes] + explanation.advise(budget)
    if as_json:
        chosen = {} if choice is None else {"choice": choice.to_json()}
        noted = {"notes": ran.beside} if ran.beside else {}
        typer.echo(json.dumps(explanation.to_json(full, advice) | chosen | noted, indent=2))
        return
    typer.echo("\n".join([explanation.text(advice), *(f"note: {note}" for note in ran.beside)]))
    if choice is not None:
        typer.echo(str(choice))
    if full:
        typer.echo("the critical path from launch to end:")
        for s in explanation.stretches():
            on = f" on {s.link}" if s.link else ""
            typer.echo(
                f"  {s.start_ps / 1000:>14,.3f} .. {s.end_ps / 1000:<14,.3f} {s.category}{on}: "
                f"{s.place}, {s.what} {s.origin}".rstrip()
            )
