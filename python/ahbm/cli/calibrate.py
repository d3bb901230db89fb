"""`ahbm calibrate`: a machine that is fitted to measured tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ahbm.cli import completion, progress
from ahbm.cli.app import Command, app
from ahbm.cli.options import Json, OfTable, output_option, refuse_given
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm.calibrate.calibration import Calibrated
    from ahbm.calibrate.computing import Fitted


@app.command(
    cls=Command,
    page="calibrate",
    examples=(
        "ahbm calibrate all_reduce.csv -o machine.yaml",
        "ahbm calibrate all_reduce.csv -t dgx_h100 --json",
        "ahbm calibrate mine.csv --prior dgx_h100 -o mine.yaml",
        "ahbm calibrate trace.json.gz -o machine.yaml",
    ),
)
def calibrate(
    context: typer.Context,
    tables: Annotated[
        list[Path],
        typer.Argument(
            help="nccl-tests' or rccl-tests' text or JSON, or CSV; or traces of torch.profiler and tables of kernels."
        ),
    ],
    template: Annotated[
        str | None,
        typer.Option(
            "-t",
            "--topology",
            autocompletion=completion.topologies,
            help="What to fit: a packaged machine or a topology.yaml; else what the tables' heads say.",
        ),
    ] = None,
    output: Annotated[Path | None, output_option("Write the machine here.")] = None,
    free: Annotated[
        list[str] | None,
        typer.Option(
            "--free",
            metavar="KEY[=LO..HI]",
            help="With -t: fit these keys of it alone, by running it; repeatable.",
        ),
    ] = None,
    collective: OfTable = None,
    ranks: Annotated[int | None, typer.Option("--ranks", help="Of tables that do not say it.")] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", help="Of tables that do not say it.")] = None,
    accelerator: Annotated[
        str | None,
        typer.Option(
            "--accelerator", help="Whose data sheet the machine computes by; else the one that the tables name."
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", help="Of tables of kernels: the accelerator whose rows count; of traces: its name."),
    ] = None,
    nic_gbs: Annotated[
        float | None,
        typer.Option("--nic-gbs", min=0.001, help="GB/s of one accelerator's share of its node's network interfaces."),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            "--prior",
            autocompletion=completion.topologies,
            help="A machine of the kind, fitted to others' clusters: it holds where the table, of few rows, is silent.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit a machine to measurements; report its error at sizes or operations that were held back.

    Every second row is held back from a fit to the others, and the other way round. The machine itself is fitted to all
    rows. Its file carries its sources, the errors for each power of ten of the size, and the range that it is valid
    for; every command takes it as a topology.

    A trace of any script on one accelerator (record_shapes=True) says what kernels take: the section `compute` of the
    machine is fitted to it, and every second operation is held back.
    """
    from ahbm.calibrate import calibration, computing, keys, own
    from ahbm.calibrate import tables as files
    from ahbm.calibrate.readers import operations

    kinds = {operations.sort(path) for path in tables}
    if kinds & {"trace", "kernels"}:
        if kinds - {"trace", "kernels"}:
            raise ConfigError(
                "AHBM-C146", "tables of collectives and operations of one accelerator are fitted one after the other"
            )
        refuse_given(context, "of tables of collectives", ["free", "collective", "ranks", "nodes", "nic_gbs", "prior"])
        measured = [each for path in tables for each in operations.read(path, device)]
        _done(computing.calibrate(measured, template, accelerator, progress.at), output, as_json)
        return
    if device is not None:
        raise ConfigError("AHBM-C146", "--device is for traces and tables of kernels")
    read = [files.read(path, collective, ranks, nodes) for path in tables]
    if template and nic_gbs is not None:
        raise ConfigError("AHBM-C146", "--nic-gbs is for the tables' own template, not for -t", hint="-t has nic_gbs")
    if prior is not None:
        refuse_given(context, "of fits without --prior", ["template", "free", "accelerator", "nic_gbs"])
        _done(own.calibrated(read, prior, progress.at), output, as_json)
        return
    found = (
        keys.calibrate(read, template, free, accelerator)
        if free
        else calibration.calibrate(read, template, progress.at, accelerator, nic_gbs)
    )
    _done(found, output, as_json)


def _done(found: Calibrated | Fitted, output: Path | None, as_json: bool) -> None:
    from ahbm.calibrate import written

    progress.clear()
    if output is not None:
        written.save(found.tree, output)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
        return
    typer.echo(found.text())
    if output is not None:
        typer.echo(f"machine: {output}")
