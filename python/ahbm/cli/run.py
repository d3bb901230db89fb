"""`ahbm run`: a script, a plan, or one collective."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from ahbm.cli.app import app
from ahbm.cli.options import (
    Ccl,
    Check,
    Dtype,
    Json,
    Lenient,
    Limits,
    NoData,
    Op,
    Quirks,
    Root,
    Settings,
    Topology,
    parse_overrides,
    parse_slots,
)
from ahbm.cli.output import fail_if_wrong
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm.reading import Reading
    from ahbm.report import Report
    from ahbm.timed import TimeReport

PLANS = (".xml", ".json", ".et")
"""What the names of plans end in."""


class _Run(typer.core.TyperCommand):
    """What follows a script belongs to the script; what follows a plan belongs to `ahbm run`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = [arg for arg in args if arg.endswith((".py", *PLANS))]
        ctx.allow_interspersed_args = bool(named) and named[0].endswith(PLANS)
        return super().parse_args(ctx, args)


@app.command(cls=_Run, context_settings={"allow_extra_args": True, "allow_interspersed_args": False})
def run(
    context: typer.Context,
    script: Annotated[
        Path | None,
        typer.Argument(help="A Python script that uses ahbm, its arguments follow; or a plan (.xml, .json, .et)."),
    ] = None,
    collective: Annotated[str | None, typer.Option("--collective", help="Run this collective, not a script.")] = None,
    algorithm: Annotated[str | None, typer.Option("-a", "--algorithm", help="Name, or path of a module.")] = None,
    size: Annotated[
        str | None, typer.Option("-b", "--bytes", "--size", help="Size of one rank's array: 256, 64K, 1M.")
    ] = None,
    slots: Annotated[str | None, typer.Option("--slots", help="Plans: messages a queue holds, or inf.")] = None,
    protocol: Annotated[str | None, typer.Option("--protocol", help="Plans: Simple, LL or LL128.")] = None,
    slice_bytes: Annotated[
        str | None, typer.Option("--slice", help="Plans: size of the largest message, or inf; else the protocol's.")
    ] = None,
    instances: Annotated[int | None, typer.Option("--instances", min=1, help="Plans: parallel copies.")] = None,
    quirks: Quirks = False,
    lenient: Lenient = False,
    limits: Limits = None,
    et: Annotated[
        Path | None,
        typer.Option(
            "--et", metavar="PREFIX", help="Write the run as a Chakra trace, PREFIX.<rank>.et, with its times."
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="FILE", help="Write the run as a timeline: .pftrace for Perfetto, .json for Chrome."
        ),
    ] = None,
    dtype: Dtype = "f16",
    op: Op = "sum",
    root: Root = 0,
    no_data: NoData = False,
    check: Check = None,
    topology: Topology = None,
    ccl: Ccl = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Run a script or a plan (FILE --size 1M) on the emulated machine, or one collective (--collective)."""
    overrides = parse_overrides(settings)
    if script is not None and script.suffix in PLANS:
        from ahbm.check import parse_limits
        from ahbm.reading import Reading
        from ahbm.report import Report

        if collective is not None or algorithm is not None or root != 0 or context.args:
            raise ConfigError("AHBM-C146", f"a plan is run as `ahbm run {script} --size 1M`")
        report = _plan(
            script,
            topology,
            size=size,
            dtype=dtype,
            op=op,
            slots=slots,
            protocol=protocol,
            instances=instances,
            slice_bytes=slice_bytes,
            data=not no_data,
            check=check,
            overrides=overrides,
            ccl=ccl,
            et=et,
            trace=trace,
            reading=Reading(quirks, lenient, parse_limits(limits or ())),
        )
        typer.echo(json.dumps(report.to_json(), indent=2) if as_json else str(report))
        fail_if_wrong([report] if isinstance(report, Report) else [])
        return
    if check is not None and collective is None:
        raise ConfigError(
            "AHBM-C143", "--check is for plans and --collective", hint="ahbm.run(..., check=...) in a script"
        )
    if (slots, protocol, instances, slice_bytes, limits) != (None,) * 5 or lenient or quirks:
        options = "--slots, --protocol, --slice, --instances, --limit, --lenient and --quirks"
        raise ConfigError("AHBM-C146", f"{options} are for plans")
    if script is not None and (et, trace) != (None, None):
        raise ConfigError(
            "AHBM-C146", "--et and --trace are for one collective or plan; a script runs as many as it likes"
        )
    if (script is None) == (collective is None):
        raise ConfigError(
            "AHBM-C143",
            "give either a script or --collective",
            hint="ahbm run train.py, or ahbm run --collective all_reduce --bytes 64K",
        )
    if collective is not None:
        import ahbm
        from ahbm.bench import parse_dtype, parse_size

        report = ahbm.run(
            collective,
            algorithm,
            topology,
            bytes_per_rank=parse_size(size) if size else None,
            dtype=parse_dtype(dtype),
            op=op,
            root=root,
            data=not no_data,
            check=check or False,
            overrides=overrides,
            ccl=ccl,
            et=et,
            trace=trace,
        )
        typer.echo(json.dumps(report.to_json(), indent=2) if as_json else str(report))
        fail_if_wrong([report])
    elif script is not None:
        from ahbm.session import Setup, using

        with using(Setup(topology, ccl, overrides or None, algorithm)), _as_main(script, context.args) as execute:
            execute()


def _plan(
    file: Path,
    topology: str | None,
    *,
    size: str | None,
    dtype: str,
    op: str,
    slots: str | None,
    protocol: str | None,
    instances: int | None,
    slice_bytes: str | None,
    data: bool,
    check: str | None,
    overrides: dict[str, object],
    ccl: Path | None,
    et: Path | None,
    trace: Path | None,
    reading: Reading,
) -> Report | TimeReport:
    """Runs a plan; for its time only where no result is known."""
    from ahbm import plans, timed
    from ahbm.bench import parse_dtype, parse_size
    from ahbm.collectives import COLLECTIVES
    from ahbm.config import WHOLE

    nbytes = parse_size(size) if size is not None else None
    largest = WHOLE if slice_bytes == "inf" else parse_size(slice_bytes) if slice_bytes else None
    needs_size = ConfigError("AHBM-C146", f"a plan is run as `ahbm run {file} --size 1M`")
    if nbytes is None and file.suffix == ".xml":
        raise needs_size
    plan = reading.read(file)
    if plan.buffers and nbytes is None:
        raise needs_size
    if not plan.buffers and (protocol, instances, slice_bytes) != (None,) * 3:
        raise ConfigError("AHBM-C146", f"{file} names no buffers: it has no protocol, slices or instances")
    if slots is not None and not plan.queues:
        raise ConfigError("AHBM-C146", f"{file} has no queues: it runs without --slots")
    if not plan.buffers or plan.collective not in COLLECTIVES:
        if check is not None:
            raise ConfigError("AHBM-C146", f"{file} runs for its time only: --check is for plans with a known result")
        return timed.run(
            plan,
            plans.label(file),
            topology,
            nbytes=nbytes,
            dtype=parse_dtype(dtype) if plan.buffers else "u8",
            op=op,
            slots=parse_slots(slots) if plan.buffers or slots is not None else None,
            protocol=protocol,
            instances=instances or 1,
            slice_bytes=largest,
            overrides=overrides,
            ccl=ccl,
            et=et,
            trace=trace,
        )
    assert nbytes is not None
    return plans.run(
        file,
        topology,
        nbytes=nbytes,
        dtype=parse_dtype(dtype),
        op=op,
        slots=parse_slots(slots),
        protocol=protocol,
        instances=instances or 1,
        slice_bytes=largest,
        data=data,
        check=check or False,
        overrides=overrides,
        ccl=ccl,
        et=et,
        trace=trace,
        reading=reading,
    )


@contextmanager
def _as_main(script: Path, args: list[str]) -> Iterator[Callable[[], object]]:
    """Lets `script` run as `python script args` would."""
    import runpy

    if not script.is_file():
        raise ConfigError("AHBM-C144", f"there is no script {script}")
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *args]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        yield lambda: runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = argv, path
