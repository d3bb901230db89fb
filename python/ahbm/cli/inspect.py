"""`ahbm inspect`: what happened inside a run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Annotated, Any

import typer

from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import Asked, CollectiveOrPlan, Device, Json
from ahbm.cli.targets import Targeted, arguments_of
from ahbm.errors import ConfigError

Element = Annotated[
    str | None,
    typer.Option("--element", metavar="RANK:INDEX", help="What an element was made of; RANK.CUBE:INDEX with --device."),
]


@app.command(
    "inspect",
    cls=Targeted,
    page="inspect",
    examples=(
        "ahbm inspect all_reduce -a ring_allreduce -t npu_ring_8 --at 1200ns --rank 3",
        "ahbm inspect all_reduce -a ring_allreduce -t npu_ring_8 --element 3:17",
        "ahbm inspect all_reduce -a ring_allreduce -t npu_ring_8 --from 2:17",
    ),
)
@grouped
def inspect(
    context: typer.Context,
    target: CollectiveOrPlan,
    *,
    asked: Asked,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="1200ns, 1.2us, 500ps or 50%; else the middle, of elements and deadlocks the end.",
        ),
    ] = None,
    element: Element = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="RANK:INDEX", help="Where a rank's element went.")
    ] = None,
    rank: Annotated[int | None, typer.Option("--rank", help="State: of this rank's PEs only.")] = None,
    pe: Annotated[str | None, typer.Option("--pe", metavar="sip3.cube0.pe0", help="State: of this PE only.")] = None,
    depth: Annotated[int | None, typer.Option("--depth", min=1, help="Elements: hops that are shown.")] = None,
    device: Device = False,
    as_json: Json = False,
) -> None:
    """Look into a run: its state at a time, what an element was made of, or where it went.

    The state: who does what, who waits for whom, and what is in the queues, counters and links.
    """
    from ahbm.base.collectives import COLLECTIVES

    one = {"--element": element, "--from": from_}
    state = {"--rank": rank, "--pe": pe}
    given = [name for name, value in one.items() if value is not None]
    unfit = [name for name, value in state.items() if value is not None] if given else []
    unfit += ["--depth"] if depth is not None and not given else []
    unfit += ["--at"] if at is not None and from_ is not None else []
    if len(given) > 1 or unfit:
        names = ", ".join(given + unfit)
        hint = "--element goes with --at and --depth, --from with --depth, a state with --at, --rank and --pe"
        raise ConfigError("AHBM-C146", f"{names or '--depth'} do not go together", hint=hint)
    if asked.size is None and target in COLLECTIVES:
        asked = replace(asked, size="4K")
    opened = asked.open(target, device=device, args=arguments_of(context))
    inspection = opened.inspect()
    found: Any
    if element is not None:
        whose, cube, index = _named("--element", element)
        found = inspection.origin_of(whose, index, at=at, cube=cube)
    elif from_ is not None:
        whose, cube, index = _named("--from", from_)
        found = inspection.fate_of(whose, index, cube=cube)
    else:
        found = inspection.at(at)
        found = found if rank is None and pe is None else found.of(rank=rank, place=pe)
    if as_json:
        noted = {"notes": list(inspection.notes)} if inspection.notes else {}
        typer.echo(json.dumps(found.to_json() | noted, indent=2))
        return
    lines = found.lines(depth) if given else found.lines()
    typer.echo("\n".join([*lines, *(f"note: {note}" for note in inspection.notes)]))


def _named(option: str, text: str) -> tuple[int, int, int]:
    """Rank, cube and index of RANK:INDEX or RANK.CUBE:INDEX. Raises ConfigError (AHBM-C146)."""
    found = re.fullmatch(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?:([0-9]{1,15})", text)
    if found is None:
        raise ConfigError("AHBM-C146", f"{option} {text}: no element", hint=f"{option} 3:17, element 17 of rank 3")
    return int(found[1]), int(found[2] or 0), int(found[3])
