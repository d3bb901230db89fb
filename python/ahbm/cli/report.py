"""`ahbm report`: whatever can be run as a page."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ahbm.cli import completion, progress
from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import (
    Device,
    Json,
    Recorded,
    Swept,
    output_option,
    parse_ranks,
    refuse_given,
)
from ahbm.cli.output import fail, fail_where
from ahbm.cli.targets import Targeted, arguments_of
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm.runs.report import Report
    from ahbm.table.cases import Refused
    from ahbm.views.page import Page


@app.command(
    cls=Targeted,
    page="reports",
    examples=(
        "ahbm report all_reduce -e 64K -o report.html",
        "ahbm report all_reduce -t ring_1d --sizes 1K,64K --ranks 2,4,8 --no-explain",
        "ahbm report plan.xml -e 64K -o plan.html",
        "ahbm report all_gather -t npu_ring_8 --ladder --synth ring -o ladder.html",
        "ahbm report yesterday.json today.json -o changes.html",
    ),
)
@grouped
def report(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            help="all_reduce, ...; a plan or a job (.xml, .json, .et); a script that lowers one, with its arguments; a "
            "ccl.yaml that `ahbm ladder` wrote; or what --json printed then.",
            autocompletion=completion.collectives,
            show_default=False,
        ),
    ],
    after: Annotated[
        Path | None, typer.Argument(help="What --json printed now: the page compares.", show_default=False)
    ] = None,
    output: Annotated[Path, output_option("The page.")] = Path("report.html"),
    *,
    swept: Swept,
    ladder: Annotated[
        bool, typer.Option("--ladder", help="The quickest for each range of sizes, of all configured without -a.")
    ] = False,
    synth: Annotated[
        list[str] | None, typer.Option("--synth", help="Also schedules by this method, certified; repeatable.")
    ] = None,
    recorded: Recorded,
    numerics: Annotated[bool, typer.Option("--numerics", help="Also rounding errors and orders of addition.")] = False,
    device: Device = False,
    explain: Annotated[bool, typer.Option(help="Also where the time of the largest size went.")] = True,
    charts: Annotated[Path | None, typer.Option("--charts", help="Also every chart as a file in this folder.")] = None,
    kind: Annotated[str, typer.Option("--format", help="Of these files: svg or png.")] = "svg",
    as_json: Json = False,
) -> None:
    """Write one HTML file: what is fastest, how far from the bound, why, what to try; with charts and a timeline.

    Of a sweep; of a plan, a job or a ladder; of two runs. Several -t or --set KEY=1,2 are machines beside each other;
    what does not run is told on the page, and the exit code tells. --ranks 8 gives the machine 8 ranks; --ranks
    2,4,8 adds which algorithm is fastest at these numbers.
    """
    from ahbm.views.page import require_extra

    require_extra()
    if charts is None:
        _refuse(context, "no --charts", ("kind",))
    swept.refuse_sizes_given_twice(context)
    args, methods = arguments_of(context), tuple(synth or ())
    cells: list[Report | Refused] = []
    facts: dict[str, Any] = {}
    wrong = False
    if after is not None:
        from ahbm.views import comparisons

        _refuse(context, "files are compared as they are", ("swept", *WHAT))
        page = comparisons.of_files(target, after)
    elif ladder or target.endswith((".yaml", ".yml")):
        _refuse(context, "a ladder", (*OF_JOBS, "numerics", "device", "explain"))
        page, facts, wrong = _ladder(target, args, swept, methods)
    elif (timed := _timed(target, args, swept, recorded)) is not None:
        _refuse(context, f"{target} runs for its time only", ("synth", "numerics", "device", "explain", "store"))
        sizes = ("begin", "factor", "sizes", "vary", "no_data", "root", *(["end"] if timed[2] else []))
        _refuse(context, f"{target} runs once, for its time only", sizes)
        page, facts, _ = timed
    else:
        _refuse(context, f"{target} is no job", OF_JOBS)
        page, cells, facts = _measured(target, args, swept, methods, numerics, device, explain)
    page.write(output)
    progress.clear()
    written = [output, *(page.write_charts(charts, kind) if charts is not None else ())]
    if as_json:
        typer.echo(json.dumps({"files": [str(path) for path in written]} | facts, indent=2))
    else:
        typer.echo("\n".join(f"wrote {path}" for path in written))
    fail(cells)
    fail_where(wrong)


OF_JOBS = ("groups", "step", "host_gaps", "symmetric", "replicas")
WHAT = ("ladder", "synth", *OF_JOBS, "numerics", "device", "explain")


def _refuse(context: Any, why: str, names: tuple[str, ...]) -> None:
    """Raises ConfigError (AHBM-C146) for options that do not go with the target; `swept` stands for those of sweeps."""
    from dataclasses import fields

    names = (*(name for name in names if name != "swept"), *(f.name for f in fields(Swept) if "swept" in names))
    refuse_given(context, why, names)


def _ladder(
    target: str, args: tuple[str, ...], swept: Swept, methods: tuple[str, ...]
) -> tuple[Page, dict[str, Any], bool]:
    from ahbm.table.ladder import climb, of_file
    from ahbm.views import ladders

    if target.endswith((".yaml", ".yml")):
        collective, names = of_file(target)
        given = swept.algorithms or list(names)
        sweep = replace(swept, ccl=Path(target), algorithms=given).sweep(collective)
    else:
        sweep = swept.sweep(target, args)
    found = climb(sweep, methods, **swept.runs)
    if found.failure is not None:
        raise found.failure
    progress.at("drawing the page")
    return ladders.page(found), found.to_json(), found.wrong


def _timed(
    target: str, args: tuple[str, ...], swept: Swept, recorded: Recorded
) -> tuple[Page, dict[str, Any], bool] | None:
    """A job, a trace, or a plan without a known result, and whether it states its sizes; None for what is measured."""
    from ahbm.base.elements import parse_dtype
    from ahbm.base.sizes import parse_size
    from ahbm.job.open import open_
    from ahbm.job.replay import JobReport
    from ahbm.job.targets import Target
    from ahbm.runs.timed import TimeReport
    from ahbm.views import jobs

    script = {"args": args, "program": swept.program, "frontend": swept.frontend}
    opened = open_(target, **script)
    assert isinstance(opened, Target)
    if opened.measured:
        return None
    if len(swept.algorithms or ()) > 1:
        raise ConfigError(
            "AHBM-C146", f"-a: {target} runs once, by one algorithm", hint="ahbm run -a A -a B runs it by each"
        )
    (algorithm,) = swept.algorithms or (None,)
    progress.at(f"running {target}")
    opened = open_(
        target,
        topology=swept.topology,
        ccl=swept.ccl,
        overrides=swept.overrides,
        algorithm=algorithm,
        dtype=parse_dtype(swept.dtype),
        op=swept.op,
        **recorded.of_jobs(),
        **script,
    )
    assert isinstance(opened, Target)
    sized = opened.at(parse_size(swept.end))
    ran = sized.run(data=False)
    assert isinstance(ran, JobReport | TimeReport)
    progress.at("drawing the page")
    return jobs.page(ran), ran.to_json(), sized is opened


def _measured(
    target: str,
    args: tuple[str, ...],
    swept: Swept,
    methods: tuple[str, ...],
    numerics: bool,
    device: bool,
    explain: bool,
) -> tuple[Page, list[Report | Refused], dict[str, Any]]:
    from ahbm.table import nccl
    from ahbm.table.ladder import schedules
    from ahbm.table.running import attempt
    from ahbm.table.study import gather
    from ahbm.views import machines, overview
    from ahbm.views.page import bundle

    counts = parse_ranks(swept.ranks)
    if len(counts) > 1:
        swept = replace(swept, ranks=None)
    names, entries = schedules(methods)
    sweeps = swept.sweeps(target, args, device=device)
    sweeps = [replace(s, algorithms=(*s.algorithms, *names), overrides={**s.overrides, **entries}) for s in sweeps]
    if len(sweeps) > 1:
        given = [name for name, on in (("--numerics", numerics), ("--synth", bool(methods))) if on]
        if given:
            raise ConfigError("AHBM-C146", f"{', '.join(given)}: the page is about one machine, not {len(sweeps)}")
        sides = [list(attempt([sweep], choosing=True, **swept.runs)) for sweep in sweeps]
        cells = [cell for side in sides for cell in side]
        progress.at("drawing the page")
        page = machines.page(list(zip(sweeps, sides, strict=True)))
        return page, cells, nccl.to_json(sweeps, cells, sys.argv[1:])
    # It is made while the simulations run.
    bundle()
    contents = gather(sweeps[0], counts[1:] and counts, numerics, explain, **swept.runs)
    progress.at("drawing the page")
    for sentence in contents.left_out:
        typer.echo(f"note: {sentence} --no-explain does not try.", err=True)
    cells = [*contents.reports, *contents.refused]
    return overview.page(contents), cells, nccl.to_json(sweeps, cells, sys.argv[1:])
