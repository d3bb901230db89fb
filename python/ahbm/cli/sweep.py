"""`ahbm sweep`: a space of cases into a store, and what the store answers."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ahbm.cli import progress
from ahbm.cli.app import app
from ahbm.cli.options import Json, Processes, given_of, output_option
from ahbm.cli.output import fail_where
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm.table.rows import Rows
    from ahbm.table.store import Store

ASKED = 1_000_000
"""Cases of which a sweep asks before it runs them."""
ACTIONS = ("show", "diff", "compact")
SHOWN = 40
"""Rows of a table for people."""


@app.command(
    page="sweeps",
    examples=(
        "ahbm sweep space.yaml -o rows",
        "ahbm sweep show rows --pareto time,links",
    ),
)
def sweep(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            help="A YAML file with a space: its cases are run. Or: show DIR, diff DIR DIR, compact DIR (or URLs).",
            show_default=False,
        ),
    ],
    stores: Annotated[
        list[str] | None, typer.Argument(help="Of show, diff and compact: stores of sweeps.", show_default=False)
    ] = None,
    output: Annotated[
        str | None,
        output_option("The folder or URL (s3://) of the rows; those in it are not run again. Of show: a chart."),
    ] = None,
    jobs: Processes = None,
    dask: Annotated[
        str | None, typer.Option("--dask", metavar="ADDRESS", help="Run on the workers of this Dask scheduler.")
    ] = None,
    ray: Annotated[
        str | None, typer.Option("--ray", metavar="ADDRESS", help="Run on the workers of this Ray cluster; or `auto`.")
    ] = None,
    share: Annotated[
        str | None,
        typer.Option("--range", metavar="I/N", help="Run the I-th of N equal ranges of the space: a task of an array."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help=f"Run more than {ASKED:,} cases without asking.")] = False,
    pareto: Annotated[
        str | None,
        typer.Option(
            "--pareto",
            metavar="A,B",
            help="show: the rows that no other beats in all of these columns; -A: more is better.",
        ),
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="show: the quickest row of everything computed.")] = False,
    sensitivity: Annotated[bool, typer.Option("--sensitivity", help="show: what each key does to the time.")] = False,
    widen: Annotated[
        str | None,
        typer.Option(
            "--widen", metavar="COST:PERCENT", help="show: what to change of the first design for so much more money."
        ),
    ] = None,
    optimize: Annotated[
        bool,
        typer.Option("--optimize", help="Find the quickest case of everything computed; run none that cannot be it."),
    ] = False,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, metavar="N", help="--optimize: try N designs that Optuna picks.")
    ] = None,
    halving: Annotated[
        bool, typer.Option("--halving", help="--optimize: run the better half of the designs at each next size.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="show: print comma-separated values.")] = False,
    as_json: Json = False,
) -> None:
    """Run every case of a space once, on all processors or a cluster; show and compare what is stored.

    A sweep that is repeated runs what is not in its store: what was interrupted goes on. A case that does not run is a
    row with its code. Where a result is wrong the exit code is 8, and neither --best, --pareto nor --sensitivity counts
    that row. show without an option prints all rows, in the order of the space.
    """
    takes = {
        "show": ("output", "pareto", "best", "sensitivity", "widen", "as_csv", "as_json"),
        "diff": ("as_json",),
        "compact": ("as_json",),
    }.get(what, ("output", "jobs", "dask", "ray", "share", "yes", "optimize", "trials", "halving", "as_json"))
    for name in given_of(context, [name for name in context.params if name not in ("what", "stores", *takes)]):
        called = f"sweep {what}" if what in ACTIONS else "sweep of a space"
        raise ConfigError("AHBM-C146", f"ahbm {called} does not take {name}")
    for together in (("as_csv", "as_json", "output"), ("pareto", "best", "sensitivity", "widen")):
        if what == "show" and len(both := given_of(context, together)) > 1:
            raise ConfigError("AHBM-C146", f"{' and '.join(both)} are both given", hint="give one of them")
    folders = list(stores or ())
    wanted = {"show": 1, "diff": 2, "compact": 1}.get(what, 0)
    if len(folders) != wanted:
        hint = "ahbm sweep SPACE.yaml -o DIR; ahbm sweep show DIR; ahbm sweep diff DIR DIR"
        raise ConfigError("AHBM-C146", f"ahbm sweep {what[:40]} takes {wanted} stores, not {len(folders)}", hint=hint)
    if what == "show":
        _show(folders[0], None if output is None else Path(output), pareto, best, sensitivity, widen, as_csv, as_json)
    elif what == "diff":
        _diff(folders[0], folders[1], as_json)
    elif what == "compact":
        from ahbm.table.store import Store

        before, after = Store(folders[0]).compact()
        typer.echo(json.dumps({"before": before, "after": after}) if as_json else f"{before} parts are {after}")
    else:
        if len(both := given_of(context, ("dask", "ray"))) > 1:
            raise ConfigError("AHBM-C146", f"{' and '.join(both)} are both given", hint="give one of them")
        for name in given_of(context, ("trials", "halving")) if not optimize else ():
            raise ConfigError("AHBM-C146", f"{name} is of a search", hint="--optimize")
        for name in given_of(context, ("dask", "ray", "share")) if optimize else ():
            raise ConfigError("AHBM-C146", f"ahbm sweep --optimize does not take {name}", hint="--jobs N")
        if optimize:
            _optimize(Path(what), output, jobs, trials, halving, as_json)
            return
        _run(Path(what), output, jobs, (dask, ray), _share(share), yes, as_json)


def _optimize(
    path: Path, output: str | None, jobs: int | None, trials: int | None, halving: bool, as_json: bool
) -> None:
    from ahbm.sweeps.search import optimize

    def tell(now: object) -> None:
        progress.at(str(now), lines=not as_json)

    table, search = optimize(path, trials=trials, halving=halving, jobs=jobs, store=output, tell=tell)
    progress.clear()
    sure = trials is None and not halving
    ran = {"cases": len(search.trials), "run": search.measured, "spared": search.spared, "sure": sure}
    if as_json:
        typer.echo(json.dumps({**ran, "best": list(table)}, indent=2))
        return
    typer.echo(str(table))
    why = "their lower bounds are above the best" if sure else "one of them may be quicker"
    typer.echo(f"{search.measured:,} of {len(search.trials):,} cases ran, {search.spared:,} did not: {why}")


def _share(text: str | None) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text or "1/1")
    number, of = (int(one) for one in found.groups()) if found else (0, 0)
    if not 1 <= number <= of:
        hint = "--range 1/64 is the first of 64"
        raise ConfigError("AHBM-C146", f"--range takes a number from 1 to N, and N, not {text}", hint=hint)
    return number, of


def _agreed(cases: int, yes: bool) -> None:
    """Raises ConfigError (AHBM-C146) for very many cases to which nobody says yes."""
    if cases <= ASKED or yes:
        return
    message = f"the space has {cases:,} cases"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        hint = "--yes runs them; a range in place of a list, with random: N, runs some of them"
        raise ConfigError("AHBM-C146", message, hint=hint)
    if not typer.confirm(f"{message}. Run them?", err=True):
        raise ConfigError("AHBM-C146", f"{message}, and none of them ran")


def _run(
    path: Path,
    output: str | None,
    jobs: int | None,
    clusters: tuple[str | None, str | None],
    share: tuple[int, int],
    yes: bool,
    as_json: bool,
) -> None:
    from ahbm.base.host import processors
    from ahbm.base.sizes import resize_notes
    from ahbm.sweeps.clusters import RayExecutor, dask_executor
    from ahbm.sweeps.running import Progress, swept
    from ahbm.sweeps.space import Space
    from ahbm.sweeps.sweep import workers_of

    space = Space.of(path)
    if output is None:
        raise ConfigError("AHBM-C146", "ahbm sweep writes its rows into a folder", hint="name it: -o rows")
    _agreed(space.count * share[0] // share[1] - space.count * (share[0] - 1) // share[1], yes)
    dask, ray = clusters
    executor: Executor | Callable[[], Executor] | None = None if dask is None else dask_executor(dask)
    executor = executor if ray is None else partial(RayExecutor, None if ray == "local" else ray)
    jobs = jobs if jobs is not None or executor is not None else processors()
    state = Progress(space.count)

    def tell(now: Progress) -> None:
        nonlocal state
        state = now
        progress.at(str(now), lines=not as_json)

    for _ in swept(space, workers_of(space, jobs, executor), output, share=share, tell=tell):
        pass
    progress.clear()
    if as_json:
        found: dict[str, Any] = {"cases": state.total, "known": state.known, "run": state.done, "failed": state.failed}
        found |= {"wrong": state.wrong}
        found |= {"resized": [one.to_json() for one in state.resized]} if state.resized else {}
        typer.echo(json.dumps({**found, "store": str(output)}))
    else:
        failed = f", {state.failed:,} of them did not run to their end" if state.failed else ""
        failed += f", {state.wrong:,} of them wrong" if state.wrong else ""
        typer.echo(f"{state.total:,} cases in {output}: {state.known:,} were there, {state.done:,} are new{failed}")
        for note in resize_notes(state.resized):
            typer.echo(f"note: {note}")
    fail_where(state.wrong > 0)


def _show(
    folder: str,
    output: Path | None,
    pareto: str | None,
    best: bool,
    sensitivity: bool,
    widen: str | None,
    as_csv: bool,
    as_json: bool,
) -> None:
    from ahbm.sweeps import stored
    from ahbm.table.store import Store

    goals = [goal.strip() for goal in pareto.split(",")] if pareto is not None else ["time"] if best else []
    store = Store(folder)
    _tell_unfinished(store)
    if output is not None:
        from ahbm.views.page import require_extra

        require_extra()
        from ahbm.views.sweeps import What, draw

        what: What = "pareto" if pareto is not None else "best" if best else "sensitivity" if sensitivity else ""
        draw(store.rows(), what, goals, output, Path(folder).name)
        typer.echo(f"wrote {output}")
        return
    if sensitivity:
        effects = stored.sensitivity(store)
        texts = [f"{effect.factor:8.3f}x  {effect.key}: {_shares(effect.values)}" for effect in effects]
        _print([effect.to_json() for effect in effects], texts, as_csv, as_json)
        return
    if widen is not None:
        _widen(store.rows(), widen, as_csv, as_json)
        return
    if goals:
        found, wrong = stored.pareto(store, goals)
        if wrong:
            typer.echo(f"note: wrong results take no part: {', '.join(wrong)}", err=True)
    else:
        found = store.rows()
    if not (as_csv or as_json):
        _table(found, goals)
    else:
        names = list(found.columns)
        lines = found.csv().splitlines() if as_csv else []
        _print(found.take(range(len(found))) if as_json else names, lines, as_csv, as_json)


def _widen(rows: Rows, asked: str, as_csv: bool, as_json: bool) -> None:
    from ahbm.sweeps.advice import widen

    found = re.fullmatch(r"(.+):([0-9]+(?:\.[0-9]+)?)%?", asked)
    if found is None or as_csv:
        hint = "--widen dollars:10 is 10 % more of the column dollars; --json prints all"
        raise ConfigError("AHBM-C146", f"--widen takes a column and percent, not {asked}", hint=hint)
    cost = found[1]
    advice = widen(rows, cost, float(found[2]) / 100)
    if as_json:
        stated = {"stands": advice.stands, "cost": advice.cost, "dearer": advice.dearer}
        typer.echo(json.dumps({**stated, "changes": [change.to_json() for change in advice.changes]}, indent=2))
        return
    stands = ", ".join(f"{key} {value}" for key, value in advice.stands.items())
    typer.echo(f"stands: {stands}; {cost} {advice.cost:,.6g}")
    for change in advice.changes:
        more = 100 * (change.cost[1] / change.cost[0] - 1) if change.cost[0] else float("inf")
        typer.echo(
            f"{change.factor:8.4f}x  {change.key}: {change.before} -> {change.after}, {cost} {change.cost[1]:,.6g} "
            f"(+{more:.1f} %)"
        )
        for what, before, after, was, now in change.times[:SHOWN]:
            message = " ".join(
                str(value) for name, value in what.items() if name in ("job", "collective", "bytes", "dtype")
            )
            by = was if was == now else f"{was} -> {now}"
            typer.echo(f"           {message}: {before:,.2f} -> {after:,.2f} ns, {by}")
    if not advice.changes:
        typer.echo("no design that differs in one thing costs more and no more than that")
    if advice.dearer:
        typer.echo(f"{advice.dearer:,} designs that differ in one thing cost more than that")


def _tell_unfinished(store: Store) -> None:
    found = store.unfinished()
    if found is not None:
        typer.echo(f"note: {store.folder} is {found}", err=True)


def _shares(values: Any) -> str:
    return ", ".join(f"{value} {share:.3f}" for value, share in values)


def _print(data: Any, lines: list[str], as_csv: bool, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(data, indent=2))
    else:
        typer.echo("\n".join(lines), nl=bool(lines))


def _table(rows: Rows, goals: list[str]) -> None:
    from ahbm.runs import bands
    from ahbm.sweeps import answers

    names = [
        name
        for name in (*answers.ASKED, *answers.CHOSEN, *answers.overrides(rows), *sorted(rows.computed))
        if name in rows.columns
    ]
    kept = rows.take(range(min(len(rows), SHOWN)))
    names = [name for name in names if any(row[name] is not None for row in kept)]
    measured = ("latency_ns", "busbw_gbs", "percent_of_bound", "wrong", "code")
    wanted = [*(answers.column(goal.removeprefix("-")) for goal in goals), *measured]
    names += [
        name for name in dict.fromkeys(wanted) if name not in names and any(row[name] is not None for row in kept)
    ]
    from ahbm.base.words import aligned

    def cell(value: object) -> str:
        return "" if value is None else f"{value:,.2f}" if isinstance(value, float) else str(value)

    units = tuple(f"({unit})" if (unit := rows.unit(name)) else "" for name in names)
    typer.echo("\n".join(aligned([tuple(names), units, *(tuple(cell(row[name]) for name in names) for row in kept)])))
    if len(rows) > SHOWN:
        typer.echo(f"and {len(rows) - SHOWN:,} more rows: --csv or --json prints all")
    if "calibration" in rows.columns:
        facts = zip(*map(rows.column, ("machine", "job", "bytes", "calibration")), strict=True)
        typer.echo("".join(f"note: {note}\n" for note in bands.of_rows(facts)), nl=False)


def _diff(before: str, after: str, as_json: bool) -> None:
    from ahbm.sweeps.answers import changes
    from ahbm.table.store import Store

    stores = Store(before), Store(after)
    for store in stores:
        _tell_unfinished(store)
    found, same = changes(*(store.rows() for store in stores))
    if as_json:
        typer.echo(json.dumps({"same": same, "changes": [change.to_json() for change in found]}, indent=2))
        return
    for change in found[:SHOWN]:
        what = ", ".join(f"{value}" for value in change.what.values())
        ratio = "" if change.ratio is None else f"  {change.ratio:.4f}x"
        typer.echo(f"{what}: {_side(change.before)} -> {_side(change.after)}{ratio}")
    if len(found) > SHOWN:
        typer.echo(f"and {len(found) - SHOWN:,} more changes: --json prints all")
    typer.echo(f"{len(found):,} cases differ, {same:,} are the same")


def _side(measured: dict[str, Any] | None) -> str:
    if measured is None:
        return "none"
    if measured["code"] is not None:
        return str(measured["code"])
    wrong = f", {measured['wrong']} wrong" if measured["wrong"] else ""
    return f"{measured['latency_ns']:,.2f} ns{wrong}"
