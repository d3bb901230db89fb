"""`ahbm ladder`: the quickest algorithm for every size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ahbm.cli import progress
from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import CollectiveOrPlan, Json, Swept, Synthesized, algorithm_option, output_option
from ahbm.cli.output import fail_where
from ahbm.cli.targets import Targeted, arguments_of
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm.table.cases import Sweep
    from ahbm.table.ladder import Ladder


@dataclass(frozen=True, kw_only=True)
class _Swept(Swept):
    algorithms: Annotated[
        list[str] | None, algorithm_option("Candidate: name, module or plan; repeatable. Else all configured.")
    ] = None


@app.command(
    cls=Targeted,
    page="synthesis",
    examples=(
        "ahbm ladder all_reduce -t npu_ring_8 -b 1K -e 1M -f 32 --synth ring -o rungs",
        "ahbm ladder all_gather -t npu_ring_8 --sizes 4K,256K --no-data",
    ),
)
@grouped
def ladder(
    context: typer.Context,
    target: CollectiveOrPlan,
    *,
    swept: _Swept,
    synth: Synthesized = None,
    chunks: Annotated[int, typer.Option("-k", "--chunks", help="Chunks of one share of synthesized schedules.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the search.")] = 0,
    output: Annotated[
        Path | None, output_option("Write a ccl.yaml; into a folder, also an MSCCL file per range.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate all candidates over sizes and keep the quickest for each range of sizes."""
    swept.refuse_sizes_given_twice(context)
    if not synth and (chunks, seed) != (1, 0):
        raise ConfigError("AHBM-C146", "--chunks and --seed are for --synth")
    sweep = swept.sweep(target, arguments_of(context))
    climbed(sweep, output, as_json, methods=tuple(synth or ()), chunks=chunks, seed=seed, **swept.runs)


def climbed(sweep: Sweep, output: Path | None, as_json: bool, **how: Any) -> None:
    """Prints the ladder of a sweep, and writes it if there is an output. how: as of `ahbm.table.ladder.climb`.

    Raises `Ladder.failure`, and writes nothing, where no candidate is left at a size. Exits as for wrong results where
    a candidate's is.
    """
    from ahbm.table.ladder import climb

    found = climb(sweep, **how)
    progress.clear()
    failure = found.failure
    written = found.save(output) if output is not None and failure is None else []
    kernels = found.kernels if output is not None and output.is_dir() else ()
    if as_json:
        files = {"files": [str(path) for path in written], "kernels": list(kernels)} if written else {}
        typer.echo(json.dumps(found.to_json() | files, indent=2))
    else:
        _print(found, written, kernels)
    if failure is not None:
        raise failure
    fail_where(found.wrong)


def _print(found: Ladder, written: Sequence[Path], kernels: Sequence[str]) -> None:
    for line in found.table():
        typer.echo(line)
    if found.failure is not None:
        return
    for entry in found.ranges():
        most = "any size" if entry.nbytes.most is None else f"{entry.nbytes.most} B"
        typer.echo(f"# from {entry.nbytes.least} B to {most}: {entry.algorithm}")
    for path in written:
        typer.echo(f"# written {path}")
    for name in kernels:
        typer.echo(f"# {name} is a kernel: it is in ccl.yaml; ahbm convert -a {name} writes a file of it")
