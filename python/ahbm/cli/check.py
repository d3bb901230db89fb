"""`ahbm check`: algorithms, read from files or captured from kernels."""

from __future__ import annotations

import json
from dataclasses import replace
from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ahbm.base.codes import CHECKS
from ahbm.base.foreign import advised
from ahbm.base.verdicts import exit_code
from ahbm.cli import completion
from ahbm.cli.app import app
from ahbm.cli.excerpts import Excerpts
from ahbm.cli.formats import FormatOption, outcomes, refuse_two
from ahbm.cli.groups import grouped
from ahbm.cli.options import Files, Json, Terms, is_given, parse_ranks, refuse_given
from ahbm.cli.targets import Targeted, arguments_of
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ahbm.runs.keywords import Arguments
    from ahbm.runs.verdict import Checked, CheckOptions


@app.command(
    cls=Targeted,
    page="check",
    examples=(
        "ahbm check plan.xml",
        "ahbm check -a ring_allreduce --size 64K",
    ),
)
@grouped
def check(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="MSCCL-IR (.xml), MSCCL++ plans (.json), Chakra traces (PREFIX.et, or a folder), or a script."
        ),
    ] = None,
    algorithms: Annotated[
        list[str] | None,
        typer.Option(
            "-a",
            "--algorithm",
            autocompletion=completion.algorithms,
            help="A kernel by name or path, instead; repeatable.",
        ),
    ] = None,
    collective: Annotated[
        str | None,
        typer.Option("--collective", autocompletion=completion.collectives, help="Kernels: what to compute."),
    ] = None,
    checks: Annotated[str, typer.Option("--check", help=f"Kernels: all, or some of {','.join(CHECKS)}.")] = "all",
    size: Annotated[
        str | None,
        typer.Option(
            "-b",
            "--bytes",
            "--size",
            help="Kernels: size of one rank's array, or several (4K,1M); else 4K and sizes by the kernel's conditions.",
        ),
    ] = None,
    identical: Annotated[
        bool, typer.Option("--identical", help="Kernels: ranks that end with other bits are wrong.")
    ] = False,
    *,
    terms: Terms,
    how: Files,
    orders: Annotated[
        int, typer.Option("--orders", min=1, max=2**32 - 1, help="Files: orders of the thread blocks to try.")
    ] = 4,
    calls: Annotated[int, typer.Option("--calls", min=1, max=16, help="Files: how often it is issued in a row.")] = 2,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=2**64 - 1, help="Chooses the random ones among the orders.")
    ] = 0,
    groups: Annotated[
        Path | None,
        typer.Option("--groups", metavar="FILE", help="Jobs: ranks of the process groups by name, as JSON."),
    ] = None,
    as_json: Json = False,
    ci: FormatOption = None,
) -> None:
    """Check algorithms: correct, wrong, deadlock, race, ...; the exit code tells which."""
    from ahbm.dsl.script import Script, imports_language
    from ahbm.runs import verdict as c

    refuse_two(ci, [("--json", as_json)])
    if bool(files) == bool(algorithms):
        raise ConfigError(
            "AHBM-C170", "give either files or --algorithm", hint="ahbm check plan.xml, or ahbm check -a ring_allreduce"
        )

    for name in files or ():
        _refuse_name(name)
    if algorithms:
        refuse_given(context, "-a names kernels", OF_FILES)
    else:
        refuse_given(context, "files say themselves what they compute", OF_KERNELS)
        if not imports_language(files[0] if files else ""):
            refuse_given(context, f"{' '.join(files or ())} is no script", ("program", "frontend"))

    def answers() -> Iterable[Checked]:
        if files:
            options = c.CheckOptions(how.depth, orders, seed, calls, how.reading)
            if imports_language(files[0]):
                refuse_given(context, f"{files[0]} is no job", OF_JOBS)
                script = Script(files[0], arguments_of(context), how.program, how.frontend)
                yield from c.check_script(script, options)
            else:
                yield from _jobs_and_files(context, files, options, terms, groups)
            return
        from ahbm.base.elements import parse_dtype
        from ahbm.base.sizes import parse_size

        # Several numbers of ranks are no several machines here: the answer is about all of them.
        place = replace(terms, ranks=None)
        request: Arguments = {
            "dtype": parse_dtype(terms.dtype),
            "op": terms.op,
            "ccl": terms.ccl,
            "overrides": place.overrides,
        }
        if is_given(context, "root"):
            request["root"] = terms.root
        for algorithm in algorithms or ():
            yield c.check_kernel(
                algorithm,
                collective,
                place.topology,
                checks=f"{checks},divergence" if identical else checks,
                seed=seed,
                ranks=parse_ranks(terms.ranks),
                sizes=[] if size is None else [parse_size(one) for one in size.split(",")],
                **request,
            )

    verdicts, excerpts = set(), Excerpts()
    with outcomes("check", ci) as gathered:
        for answer in answers():
            found = advised(answer.findings, files or (), "check") if answer.findings else ()
            checked = replace(answer, findings=found)
            verdicts.add(checked.verdict)
            if gathered is not None:
                gathered.checked(checked)
            else:
                typer.echo(json.dumps(checked.to_json()) if as_json else excerpts.below(str(checked)))
        raise typer.Exit(exit_code(verdicts))


OF_FILES = ("slots", "quirks", "lenient", "limits", "program", "frontend", "orders", "calls", "groups")
OF_KERNELS = ("collective", "checks", "size", "root", "identical")
OF_JOBS = ("topologies", "ranks", "settings", "ccl", "dtype", "op", "groups")


def _refuse_name(file: str) -> None:
    """Raises ConfigError (AHBM-C170) for the name of an algorithm or a collective, where files are asked for."""
    from ahbm.base.collectives import COLLECTIVES
    from ahbm.source.located import available

    if exists(file):
        return
    if file in COLLECTIVES:
        what, hint = (
            "a collective",
            "what performs it is checked: ahbm check -a NAME; ahbm list algorithms has the names",
        )
    elif file in available():
        what, hint = "an algorithm", f"ahbm check -a {file}"
    else:
        return
    raise ConfigError("AHBM-C170", f"{file} is {what} and no file", hint=hint)


def _jobs_and_files(
    context: typer.Context, files: list[str], options: CheckOptions, terms: Terms, groups: Path | None
) -> Iterable[Checked]:
    from ahbm._core import trace_sort
    from ahbm.errors import AhbmError
    from ahbm.job.checking import check_job
    from ahbm.job.nsight import is_export
    from ahbm.job.reading import How
    from ahbm.ranks.setup import Setup
    from ahbm.runs.verdict import check_files

    def is_job(file: str) -> bool:
        try:
            return is_export(file) or trace_sort(file, limits=options.reading.limits) == "job"
        except AhbmError:
            # Reading it says what is wrong.
            return False

    jobs = {file for file in files if is_job(file)}
    if not jobs:
        refuse_given(context, f"{' '.join(files)}: no job", OF_JOBS)
    checked = iter(check_files([file for file in files if file not in jobs], options))
    setup = Setup(terms.topology, terms.ccl, terms.overrides or None)
    how = How(groups=groups, dtype=terms.dtype, op=terms.op, reading=options.reading)
    for file in files:
        yield check_job(file, setup, how) if file in jobs else next(checked)
