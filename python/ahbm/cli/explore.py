"""`ahbm explore`: one collective or plan at many other times."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from ahbm.base.codes import CHECKS
from ahbm.cli import progress
from ahbm.cli.app import app
from ahbm.cli.excerpts import Excerpts
from ahbm.cli.groups import grouped
from ahbm.cli.options import AskedSmall, CollectiveOrPlan, Json, Processes
from ahbm.cli.targets import Targeted, arguments_of

if TYPE_CHECKING:
    from ahbm.check.case import Case
    from ahbm.check.exploration import Failure
    from ahbm.errors import Finding


@app.command(
    cls=Targeted,
    page="check",
    examples=(
        "ahbm explore all_reduce --seeds 8",
        "ahbm explore plan.xml --seed 3",
    ),
)
@grouped
def explore(
    context: typer.Context,
    target: CollectiveOrPlan,
    *,
    asked: AskedSmall,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=2**32, help="Seeds 0, 1, ... to try.")] = 16,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, max=2**64 - 1, help="Try this seed alone: replays its failure.")
    ] = None,
    check: Annotated[
        str,
        typer.Option("--check", help="Checks of the program under every seed: all, or some as in `ahbm run`."),
    ] = ",".join(name for name in CHECKS if name != "divergence"),
    jobs: Processes = None,
    as_json: Json = False,
) -> None:
    """Vary start times, delays and orders; replay and shrink what fails.

    What a check cannot decide is told, and the exit code is 10 where nothing fails.
    """
    from ahbm.check.checks import parse
    from ahbm.check.exploration import attempt, shrink
    from ahbm.config.topology import COUNT
    from ahbm.core.spec import machine_name
    from ahbm.errors import AhbmError, DataError, UnsupportedError, described

    args = arguments_of(context)
    case, checks = asked.open(target, args=args).case, parse(check)
    whole = case.request

    def shrunk(ranks: int, count: int) -> Case | None:
        same = ranks == whole.world_size
        nbytes = replace(whole, ranks=range(ranks), count=count).nbytes
        kept = [setting for setting in asked.settings or () if setting.partition("=")[0] != COUNT]
        machine = asked if same else replace(asked, ranks=None, settings=[*kept, f"{COUNT}={ranks}"])
        try:
            smaller = replace(machine, size=str(nbytes)).open(target, args=args).case
        except AhbmError:
            return None
        request = smaller.request
        # A plan keeps its ranks, whatever the machine.
        return smaller if (request.world_size, request.count) == (ranks, count) else None

    failures: list[Failure] = []
    # Of equal findings of several seeds, that of the first.
    undecided: dict[tuple[str, str], Finding] = {}
    excerpts = Excerpts()

    def tell(tried: int) -> None:
        progress.clear()
        if as_json:
            data = {
                "seeds": tried,
                "failures": [failure.to_json() for failure in failures],
                "undecided": [finding.to_json() for finding in undecided.values()],
                **({} if not case.overruled else {"notes": case.overruled}),
            }
            typer.echo(json.dumps(data, indent=2))
        else:
            if undecided:
                typer.echo(excerpts.below(described(list(undecided.values()))))
            for failure in failures:
                typer.echo(excerpts.below(str(failure)))
            what = f"{whole.collective} by {case.compiled().algorithm} on {machine_name(case.emulator.machine)}"
            size = f"{whole.world_size} x {whole.nbytes} B {whole.dtype} {whole.op}"
            how = {"--protocol": asked.protocol, "--slice": asked.slice_bytes, "--instances": asked.instances}
            size += "".join(f", {option} {value}" for option, value in how.items() if value is not None)
            lines = [f"{what}, {size}, checked for {', '.join(sorted(checks))}"]
            lines += [f"{len(failures)} of {tried} seeds fail", *(f"note: {n}" for n in case.overruled)]
            typer.echo("\n".join(lines))

    def keep(finding: Finding) -> None:
        undecided.setdefault((finding.code, finding.message), finding)

    numbers = range(seeds) if seed is None else [seed]
    # What may fail is tried here too, where it is shrunk.
    may_fail: Iterable[bool] = [True] * len(numbers)
    if jobs is not None:
        from ahbm.table.processes import failing

        may_fail = failing(case, numbers, checks, jobs)
    for tried, (number, may) in enumerate(zip(numbers, may_fail, strict=True), 1):
        progress.at(f"seed {number}, {tried} of {len(numbers)}, {len(failures)} failed")
        try:
            failure = attempt(case, number, checks=checks, tell=keep) if may else None
            if failure is not None:
                failures.append(failure)
                failures[-1] = shrink(failure, case, shrunk, checks)
        except BaseException:
            # Whatever ends the search, Ctrl-C too: what was found is told.
            if failures:
                tell(tried)
            raise
    tell(len(numbers))
    if failures:
        raise typer.Exit(DataError.exit_code)
    if undecided:
        raise typer.Exit(UnsupportedError.exit_code)
