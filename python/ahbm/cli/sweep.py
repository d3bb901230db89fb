"""`ahbm sweep`: a space of cases into a store, and what the store answers."""

from __future__ import annotations

import json
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
            help="A YAML file with a space: its cases are run. Or: show DIR, diff DIR DIR, compact DIR.",
            show_default=False,
        ),
    ],
    stores: Annotated[
        list[Path] | None, typer.Argument(help="Of show, diff and compact: stores of sweeps.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, output_option("The folder of the rows; those in it are not run again. Of show: a chart.")
    ] = None,
    jobs: Processes = None,
    dask: Annotated[
        str | None, typer.Option("--dask", metavar="ADDRESS", help="Run on the workers of this Dask scheduler.")
    ] = None,
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
    as_csv: Annotated[bool, typer.Option("--csv", help="show: print comma-separated values.")] = False,
    as_json: Json = False,
) -> None:
    """Run every case of a space once, on all processors or a cluster; show and compare what is stored.

    A sweep that is repeated runs what is not in its store: what was interrupted goes on. A case that does not run is a
    row with its code. Where a result is wrong the exit code is 8, and neither --best, --pareto nor --sensitivity counts
    that row. show without an option prints all rows, in the order of the space.
    """
    takes = {
        "show": ("output", "pareto", "best", "sensitivity", "as_csv", "as_json"),
        "diff": ("as_json",),
        "compact": ("as_json",),
    }.get(what, ("output", "jobs", "dask", "as_json"))
    for name in given_of(context, [name for name in context.params if name not in ("what", "stores", *takes)]):
        called = f"sweep {what}" if what in ACTIONS else "sweep of a space"
        raise ConfigError("AHBM-C146", f"ahbm {called} does not take {name}")
    for together in (("as_csv", "as_json", "output"), ("pareto", "best", "sensitivity")):
        if what == "show" and len(both := given_of(context, together)) > 1:
            raise ConfigError("AHBM-C146", f"{' and '.join(both)} are both given", hint="give one of them")
    folders = list(stores or ())
    wanted = {"show": 1, "diff": 2, "compact": 1}.get(what, 0)
    if len(folders) != wanted:
        hint = "ahbm sweep SPACE.yaml -o DIR; ahbm sweep show DIR; ahbm sweep diff DIR DIR"
        raise ConfigError("AHBM-C146", f"ahbm sweep {what[:40]} takes {wanted} stores, not {len(folders)}", hint=hint)
    if what == "show":
        _show(folders[0], output, pareto, best, sensitivity, as_csv, as_json)
    elif what == "diff":
        _diff(folders[0], folders[1], as_json)
    elif what == "compact":
        from ahbm.table.store import Store

        before, after = Store(folders[0]).compact()
        typer.echo(json.dumps({"before": before, "after": after}) if as_json else f"{before} parts are {after}")
    else:
        _run(Path(what), output, jobs, dask, as_json)


def _run(path: Path, output: Path | None, jobs: int | None, dask: str | None, as_json: bool) -> None:
    from ahbm.base.host import processors
    from ahbm.base.sizes import resize_notes
    from ahbm.sweeps.space import Space
    from ahbm.sweeps.sweep import Progress, dask_executor, swept, workers_of

    space = Space.of(path)
    if output is None:
        raise ConfigError("AHBM-C146", "ahbm sweep writes its rows into a folder", hint="name it: -o rows")
    executor = None if dask is None else dask_executor(dask)
    jobs = jobs if jobs is not None or executor is not None else processors()
    state = Progress(space.count)

    def tell(now: Progress) -> None:
        nonlocal state
        state = now
        progress.at(str(now), lines=not as_json)

    for _ in swept(space, workers_of(space, jobs, executor), output, tell=tell):
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
    folder: Path,
    output: Path | None,
    pareto: str | None,
    best: bool,
    sensitivity: bool,
    as_csv: bool,
    as_json: bool,
) -> None:
    from ahbm.sweeps import answers
    from ahbm.table.store import Store

    goals = [goal.strip() for goal in pareto.split(",")] if pareto is not None else ["time"] if best else []
    store = Store(folder)
    if output is not None:
        from ahbm.views.page import require_extra

        require_extra()
        from ahbm.views.sweeps import What, draw

        what: What = "pareto" if pareto is not None else "best" if best else "sensitivity" if sensitivity else ""
        draw(store.rows(), what, goals, output, folder.name)
        typer.echo(f"wrote {output}")
        return
    if sensitivity:
        effects = answers.sensitivity(store.rows())
        texts = [f"{effect.factor:8.3f}x  {effect.key}: {_shares(effect.values)}" for effect in effects]
        _print([effect.to_json() for effect in effects], texts, as_csv, as_json)
        return
    if goals:
        # The columns of the goals decide; the rest is read of what they leave.
        needed = [answers.column(goal.removeprefix("-")) for goal in goals]
        wrong: dict[str, None] = {}

        def choose(rows: Rows, places: Any) -> Any:
            wrong.update(dict.fromkeys(answers.wrong_by(rows)))
            return answers.pareto(rows, goals, places)

        found = store.chosen([*answers.JUDGED, *needed], choose)
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

    names = [name for name in (*answers.ASKED, *answers.CHOSEN, *answers.overrides(rows)) if name in rows.columns]
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

    typer.echo("\n".join(aligned([tuple(names), *(tuple(cell(row[name]) for name in names) for row in kept)])))
    if len(rows) > SHOWN:
        typer.echo(f"and {len(rows) - SHOWN:,} more rows: --csv or --json prints all")
    if "calibration" in rows.columns:
        facts = zip(*map(rows.column, ("machine", "job", "bytes", "calibration")), strict=True)
        typer.echo("".join(f"note: {note}\n" for note in bands.of_rows(facts)), nl=False)


def _diff(before: Path, after: Path, as_json: bool) -> None:
    from ahbm.sweeps.answers import changes
    from ahbm.table.store import Store

    found, same = changes(Store(before).rows(), Store(after).rows())
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
