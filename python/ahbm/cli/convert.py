"""`ahbm convert`: one format of algorithms into another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ahbm.cli import completion
from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import Dtype, Frontend, Json, Limits, Machine, Program, Quirks, Recorded, Root, output_option
from ahbm.cli.targets import Targeted, arguments_of
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm.job.reading import How


class Converting(Targeted):
    """`Targeted` by a plan, by a script that lowers one, or by the module of a kernel."""

    executes = False


@app.command(
    cls=Converting,
    page="imports",
    examples=(
        "ahbm convert plan.xml plan.json",
        "ahbm convert plan.xml trace.et --size 1M",
        "ahbm convert -a ring_allreduce --ranks 8 -o ring.xml",
    ),
)
@grouped
def convert(
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(
            help="A plan: .xml, .json, or a Chakra trace by its prefix; a script that lowers one, with its arguments; "
            "the module of a kernel, .py; a collective, of -a; or a PyTorch trace of a job.",
            autocompletion=completion.collectives,
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        Path | None, typer.Argument(help="What to write: .xml, .json, or PREFIX.et for PREFIX.<rank>.et.")
    ] = None,
    *,
    place: Machine,
    recorded: Recorded,
    output: Annotated[Path | None, output_option("What to write, instead of the second argument.")] = None,
    algorithm: Annotated[
        str | None,
        typer.Option("-a", "--algorithm", autocompletion=completion.algorithms, help="Kernels: name, or path."),
    ] = None,
    dtype: Dtype = "f16",
    root: Root = 0,
    size: Annotated[
        str | None,
        typer.Option(
            "-b",
            "--bytes",
            "--size",
            help="Kernels: the size that they are called for. Traces: the size that comm_size states. About 1M.",
        ),
    ] = None,
    link_order: Annotated[
        bool, typer.Option("--link-order", help="Traces: order the sends of every link by control dependencies.")
    ] = False,
    slots: Annotated[
        int | None,
        typer.Option(
            "--slots", min=1, max=2**32 - 2, help="Execution plans: messages a queue holds; a kernel's, or 2, 8 of LL."
        ),
    ] = None,
    quirks: Quirks = False,
    limits: Limits = None,
    program: Program = None,
    frontend: Frontend = None,
    as_json: Json = False,
) -> None:
    """Convert a kernel or plan to MSCCL-IR (.xml), an MSCCL++ execution plan (.json) or a Chakra trace (.et).

    PyTorch's traces of jobs become Chakra traces.
    """
    from ahbm.base.collectives import COLLECTIVES
    from ahbm.base.elements import parse_dtype
    from ahbm.base.sizes import parse_size
    from ahbm.config.reading import Reading, parse_limits
    from ahbm.dsl.script import Script, imports_language
    from ahbm.job.nsight import is_export
    from ahbm.job.reading import How, read_groups
    from ahbm.runs import plans
    from ahbm.source.function import AnyAlgorithm

    if algorithm is not None and source not in COLLECTIVES and not (target and source):
        source, target = None, target or (Path(source) if source else None)
    wanted = target or output
    if wanted is None or (target and output):
        named = " ".join(filter(None, (source, algorithm and f"-a {algorithm}")))
        raise ConfigError("AHBM-C146", "convert writes one file", hint=f"ahbm convert {named or 'SOURCE'} -o plan.json")
    what: AnyAlgorithm | Script = algorithm or source
    collective = source if source in COLLECTIVES else None
    if algorithm is not None and source is not None and collective is None:
        raise ConfigError(
            "AHBM-C146", f"{source} and -a {algorithm}: {source} is no collective", hint="give one of them"
        )
    if source is not None and imports_language(source):
        what = Script(source, arguments_of(context), program, frontend)
    elif source is not None and is_export(source):
        paths = _of_export(
            source, wanted, how=How(reading=Reading(limits=parse_limits(limits or ())), **recorded.of_jobs())
        )
        return _said(paths, as_json)
    else:
        if program is not None or frontend is not None:
            raise ConfigError("AHBM-C146", f"{source or algorithm} is no script: no --program or --frontend")
        what = None if what == collective else what
    paths = plans.convert(
        what,
        wanted,
        nbytes=parse_size(size) if size else None,
        link_order=link_order,
        slots=slots,
        quirks=quirks,
        limits=parse_limits(limits or ()),
        collective=collective,
        topology=place.topology,
        ccl=place.ccl,
        overrides=place.overrides,
        dtype=parse_dtype(dtype),
        root=root,
        groups=read_groups(recorded.groups) if recorded.groups is not None else None,
        step=recorded.step,
        host_gaps=recorded.host_gaps,
        symmetric=recorded.symmetric,
        replicas=recorded.replicas,
    )
    return _said(paths, as_json)


def _of_export(source: str, wanted: Path, how: How) -> list[Path]:
    """The job of an export of Nsight Systems as a Chakra trace."""
    from ahbm.errors import UnsupportedError
    from ahbm.job.reading import read

    if wanted.suffix.lower() != ".et":
        raise UnsupportedError("AHBM-U292", f"{wanted}: a job is written as a Chakra trace", hint="PREFIX.et")
    return read(source, how).write(wanted)


def _said(paths: list[Path], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"files": [str(path) for path in paths]}))
        return
    total = sum(path.stat().st_size for path in paths)
    files = f"{paths[0]}" if len(paths) == 1 else f"{paths[0]} to {paths[-1].name}, {len(paths)} files"
    typer.echo(f"{files}: {total} bytes")
