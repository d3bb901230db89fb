"""`ahbm check`: algorithms, read from files or captured from kernels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ahbm.cli.app import app
from ahbm.cli.options import (
    Ccl,
    Dtype,
    Json,
    Lenient,
    Limits,
    Op,
    Quirks,
    Root,
    Settings,
    Topology,
    parse_overrides,
    parse_slots,
)
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ahbm.check import Checked


@app.command()
def check(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="MSCCL-IR (.xml), MSCCL++ plans (.json), Chakra traces (PREFIX.et, or a folder)."),
    ] = None,
    algorithms: Annotated[
        list[str] | None, typer.Option("-a", "--algorithm", help="A kernel by name or path, instead; repeatable.")
    ] = None,
    collective: Annotated[str | None, typer.Option("--collective", help="Kernels: what to compute.")] = None,
    checks: Annotated[
        str, typer.Option("--check", help="Kernels: all, or some of race,uninit,leftover,deadlock,result,divergence.")
    ] = "all",
    size: Annotated[str, typer.Option("-b", "--size", help="Kernels: size of one rank's array.")] = "4K",
    dtype: Dtype = "f16",
    op: Op = "sum",
    root: Root = 0,
    topology: Topology = None,
    ccl: Ccl = None,
    overrides: Settings = None,
    slots: Annotated[str, typer.Option("--slots", help="Files: messages a queue holds, a number or inf.")] = "2",
    orders: Annotated[int, typer.Option("--orders", min=1, help="Files: orders of the thread blocks to try.")] = 4,
    calls: Annotated[int, typer.Option("--calls", min=1, max=16, help="Files: how often it is issued in a row.")] = 1,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=2**64 - 1, help="Chooses the random ones among the orders.")
    ] = 0,
    quirks: Quirks = False,
    lenient: Lenient = False,
    limits: Limits = None,
    as_json: Json = False,
) -> None:
    """Check algorithms: correct, wrong, deadlock, race, ...; the exit code tells which."""
    from ahbm import check as c

    if bool(files) == bool(algorithms):
        raise ConfigError(
            "AHBM-C170", "give either files or --algorithm", hint="ahbm check plan.xml, or ahbm check -a ring_allreduce"
        )

    def answers() -> Iterable[Checked]:
        if files:
            settings = c.Settings(
                parse_slots(slots), orders, quirks, c.parse_limits(limits or ()), seed, lenient, calls
            )
            yield from c.check_files(files, settings)
            return
        from ahbm.bench import parse_dtype, parse_size

        for algorithm in algorithms or ():
            yield c.check_kernel(
                algorithm,
                collective,
                checks,
                bytes_per_rank=parse_size(size),
                dtype=parse_dtype(dtype),
                op=op,
                root=root,
                seed=seed,
                topology=topology,
                ccl=ccl,
                overrides=parse_overrides(overrides),
            )

    verdicts = set()
    for checked in answers():
        typer.echo(json.dumps(checked.to_json()) if as_json else str(checked))
        verdicts.add(checked.verdict)
    raise typer.Exit(c.exit_code(verdicts))
