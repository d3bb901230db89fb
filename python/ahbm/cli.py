"""The `ahbm` command. What only one command needs is imported inside it: `ahbm --help` stays quick."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from ahbm.errors import AhbmError, ConfigError

if TYPE_CHECKING:
    from ahbm.report import Report

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the topology or of ccl.yaml by its dotted path; repeatable.",
    ),
]
Topology = Annotated[
    str | None,
    typer.Option("-t", "--topology", help="Packaged topology, path of a topology.yaml, or the name of a SIP network."),
]
Ccl = Annotated[Path | None, typer.Option("--ccl", help="Path of a ccl.yaml.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, errors too.")]
Dtype = Annotated[str, typer.Option("-d", "--dtype", help="f16 bf16 f32 f64 i8..i64 u8..u64, or nccl-tests' names.")]
Op = Annotated[str, typer.Option("-o", "--op", help="sum prod min max avg.")]
Root = Annotated[int, typer.Option("-r", "--root", help="Root rank of rooted collectives.")]
NoData = Annotated[bool, typer.Option("--no-data", help="Simulate the time only.")]


def main() -> None:
    """Runs the command line; an AhbmError becomes text (or JSON with --json) on stderr and its exit code."""
    as_json = "--json" in sys.argv[1:]
    try:
        app(prog_name="ahbm")
    except AhbmError as error:
        print(json.dumps(error.to_json(), indent=2) if as_json else _told(error), file=sys.stderr)
        sys.exit(error.exit_code)


def _told(error: AhbmError) -> str:
    text = f"{type(error).__name__}: {error}"
    cause = error.__cause__
    if cause is not None and not isinstance(cause, KeyboardInterrupt):
        text += f"\n  caused by {type(cause).__name__}: {cause}"
    return text


def _overrides(settings: list[str] | None) -> dict[str, object]:
    found: dict[str, object] = {}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise ConfigError("AHBM-C142", f"--set {setting}: no KEY=VALUE", hint="--set system.sips.count=4")
        found[key] = value
    return found


def _version(wanted: bool) -> None:
    if wanted:
        import ahbm

        typer.echo(f"ahbm {ahbm.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Collective algorithms on an emulated multi-chip accelerator: the right bytes, the time, and the reasons."""


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
        typer.Argument(help="A Python script that uses ahbm, its arguments follow; or a plan (.xml, .json)."),
    ] = None,
    collective: Annotated[str | None, typer.Option("--collective", help="Run this collective, not a script.")] = None,
    algorithm: Annotated[str | None, typer.Option("-a", "--algorithm", help="Name, or path of a module.")] = None,
    size: Annotated[
        str | None, typer.Option("-b", "--bytes", "--size", help="Size of one rank's array: 256, 64K, 1M.")
    ] = None,
    slots: Annotated[str | None, typer.Option("--slots", help="Plans: messages a queue holds, or inf.")] = None,
    protocol: Annotated[str | None, typer.Option("--protocol", help="Plans: Simple, LL or LL128.")] = None,
    instances: Annotated[int | None, typer.Option("--instances", min=1, help="Plans: parallel copies.")] = None,
    dtype: Dtype = "f16",
    op: Op = "sum",
    root: Root = 0,
    no_data: NoData = False,
    topology: Topology = None,
    ccl: Ccl = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Run a script or a plan (FILE --size 1M) on the emulated machine, or one collective (--collective)."""
    overrides = _overrides(settings)
    if script is not None and script.suffix in PLANS:
        from ahbm import plans
        from ahbm.bench import parse_dtype, parse_size

        if size is None or collective is not None or algorithm is not None or root != 0 or context.args:
            raise ConfigError("AHBM-C146", f"a plan is run as `ahbm run {script} --size 1M`")
        report = plans.run(
            script,
            topology,
            nbytes=parse_size(size),
            dtype=parse_dtype(dtype),
            op=op,
            slots=_slots(slots),
            protocol=protocol,
            instances=instances or 1,
            data=not no_data,
            overrides=overrides,
            ccl=ccl,
        )
        typer.echo(json.dumps(report.to_json(), indent=2) if as_json else str(report))
        _fail_if_wrong([report])
        return
    if (slots, protocol, instances) != (None, None, None):
        raise ConfigError("AHBM-C146", "--slots, --protocol and --instances are for plans")
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
            overrides=overrides,
            ccl=ccl,
        )
        typer.echo(json.dumps(report.to_json(), indent=2) if as_json else str(report))
        _fail_if_wrong([report])
    elif script is not None:
        from ahbm.session import Setup, using

        with using(Setup(topology, ccl, overrides or None, algorithm)), _as_main(script, context.args) as execute:
            execute()


def _slots(text: str | None) -> int | None:
    """Depth of a plan's queues; None is no bound."""
    from ahbm.config import SLOTS

    if text is None or text == "inf":
        return SLOTS if text is None else None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) < 2**32 - 1:
        raise ConfigError("AHBM-C146", f"--slots {text}: no depth of a queue", hint="--slots 2, or --slots inf")
    return int(text)


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


@app.command()
def bench(
    collective: Annotated[str, typer.Argument(help="all_reduce, all_gather, ...; see `ahbm list collectives`.")],
    begin: Annotated[str, typer.Option("-b", "--minbytes", help="First size.")] = "256",
    end: Annotated[str, typer.Option("-e", "--maxbytes", help="Last size.")] = "1M",
    factor: Annotated[int, typer.Option("-f", "--stepfactor", help="Factor between sizes.")] = 2,
    step: Annotated[str, typer.Option("-i", "--stepbytes", help="Bytes between sizes, instead of a factor.")] = "0",
    dtype: Dtype = "f16",
    op: Op = "sum",
    root: Root = 0,
    algorithms: Annotated[
        list[str] | None, typer.Option("-a", "--algorithm", help="Name, or path of a module; repeatable.")
    ] = None,
    device: Annotated[
        bool, typer.Option("--device", help="Device tensors: one tile of each size on every cube (all_reduce).")
    ] = False,
    no_data: NoData = False,
    topology: Topology = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Sweep a collective over sizes; nccl-tests' columns, simulated times."""
    from ahbm import bench as b

    sweep = b.Sweep(
        collective,
        b.parse_size(begin),
        b.parse_size(end),
        factor,
        b.parse_size(step),
        b.parse_dtype(dtype),
        op,
        root,
        tuple(algorithms or ()),
        topology,
        _overrides(settings),
        not no_data,
        device,
    )
    reports = []
    if as_json:
        reports = list(b.measure(sweep))
        typer.echo(json.dumps(b.to_json(sweep, reports, sys.argv[1:]), indent=2))
    else:
        typer.echo("\n".join(b.header(sweep)))
        for report in b.measure(sweep):
            if not reports or reports[-1].algorithm != report.algorithm:
                typer.echo("\n".join(b.columns(report)))
            typer.echo(b.row(report))
            reports.append(report)
        typer.echo("\n".join(b.footer(reports)))
    _fail_if_wrong(reports)


def _fail_if_wrong(reports: list[Report]) -> None:
    from ahbm.errors import DataError

    if any(report.wrong for report in reports):
        raise typer.Exit(DataError.exit_code)


@app.command()
def synth(
    collective: Annotated[str, typer.Argument(help="all_reduce, all_gather, reduce_scatter, broadcast, ...")],
    size: Annotated[str | None, typer.Option("-b", "--size", help="Size of an NPU's whole buffer: 64M.")] = None,
    chunk_bytes: Annotated[str | None, typer.Option("--chunk-bytes", help="Size of a chunk, instead.")] = None,
    chunks: Annotated[int, typer.Option("--chunks", help="Chunks of one share; trees choose their own.")] = 1,
    method: Annotated[str, typer.Option("--method", help="auto greedy trees ring routed.")] = "auto",
    seed: Annotated[int, typer.Option("--seed", help="Seed of the search.")] = 0,
    execute: Annotated[bool, typer.Option("--run", help="Run the schedule on the emulator, too.")] = False,
    dtype: Dtype = "f16",
    op: Op = "sum",
    root: Root = 0,
    no_data: NoData = False,
    topology: Topology = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Synthesize a schedule for a network of NPUs, and say how close to the limit it is."""
    from ahbm.bench import parse_dtype, parse_size
    from ahbm.synthesis import synthesize

    found = synthesize(
        collective,
        topology=topology,
        overrides=_overrides(settings),
        size=parse_size(size) if size else None,
        chunk_bytes=parse_size(chunk_bytes) if chunk_bytes else None,
        chunks=chunks,
        dtype=parse_dtype(dtype),
        op=op,
        root=root,
        method=method,
        seed=seed,
    )
    ran = found.run(data=not no_data) if execute else None
    if as_json:
        from dataclasses import asdict

        typer.echo(json.dumps(found.to_json() | ({"emulated": asdict(ran)} if ran else {}), indent=2))
    else:
        typer.echo(str(found))
        if ran is not None:
            checked = "not checked" if ran.wrong is None else f"{ran.wrong} wrong"
            typer.echo(f"  emulated    {ran.time_ps / 1e6:,.3f} us, {ran.messages} messages, {checked}")
            if not found.matches:
                typer.echo(
                    f"  note        an NPU needs {found.schedule.engines} PEs to keep all its links busy and has "
                    f"{found.machine.pes}: --set cube.pe_layout.pe_per_corner={found.schedule.engines}"
                )
    if ran is not None and ran.wrong:
        from ahbm.errors import DataError

        raise typer.Exit(DataError.exit_code)


@app.command()
def probe(topology: Topology = None, ccl: Ccl = None, settings: Settings = None, as_json: Json = False) -> None:
    """Latency and bandwidth of reference traffic patterns, each alone on the machine."""
    from ahbm import probe as p
    from ahbm.emulator import Emulator

    emulator = Emulator.load(topology, ccl, _overrides(settings))
    samples = list(p.measure(emulator.machine, emulator.settings()))
    if as_json:
        typer.echo(json.dumps([sample.to_json() for sample in samples], indent=2))
        return
    table = _table("kind", "place", ">size (B)", ">time (ns)", ">GB/s", title="simulated, one pattern alone")
    for sample in samples:
        table.add_row(
            sample.kind,
            sample.pattern,
            str(sample.bytes),
            f"{sample.latency_ns:.2f}",
            f"{sample.bandwidth_gbs:.2f}",
            end_section=sample.bytes == p.SIZES[-1],
        )
    _print(table)


@app.command()
def check(
    files: Annotated[list[str], typer.Argument(help="Plans: MSCCL-IR (.xml), MSCCL++ execution plans (.json).")],
    slots: Annotated[str, typer.Option("--slots", help="Messages a queue holds: a number, or inf.")] = "2",
    orders: Annotated[int, typer.Option("--orders", min=1, help="Orders of the thread blocks to try.")] = 4,
    quirks: Annotated[bool, typer.Option("--quirks", help="Follow the known defects of a format's runtime.")] = False,
    limits: Annotated[
        list[str] | None, typer.Option("--limit", metavar="NAME=N", help="Raise a limit of the reader; repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check algorithms read from files: correct, wrong, deadlock, race, ...; the exit code tells which."""
    from ahbm import check as c

    settings = c.Settings(_slots(slots), orders, quirks, c.parse_limits(limits or ()))
    verdicts = set()
    for checked in c.check_files(files, settings):
        typer.echo(json.dumps(checked.to_json()) if as_json else str(checked))
        verdicts.add(checked.verdict)
    raise typer.Exit(c.exit_code(verdicts))


@app.command("list")
def list_(
    what: Annotated[str | None, typer.Argument(help="algorithms, topologies or collectives; all without it.")] = None,
    ccl: Ccl = None,
    as_json: Json = False,
) -> None:
    """List what there is to run."""
    from ahbm import topology
    from ahbm.algorithm import AlgorithmLoader, available
    from ahbm.collectives import COLLECTIVES
    from ahbm.config import CclConfig

    def algorithms() -> list[dict[str, str]]:
        config, loader = CclConfig.load(ccl), AlgorithmLoader()
        found = []
        for name in sorted({*config.algorithms, *available()}):
            loaded = loader.load(config.settings(name))
            found.append({"algorithm": name, "collective": ", ".join(loaded.collectives), "file": str(loaded.path)})
        return found

    def collectives() -> list[dict[str, str]]:
        config = CclConfig.load(ccl)
        return [{"collective": name, "algorithm": config.choose(name, 1 << 20)} for name in COLLECTIVES]

    def topologies() -> list[dict[str, str]]:
        return [{"topology": name, "kind": "file"} for name in topology.names()] + [
            {"topology": name, "kind": "SIP network"} for name in topology.NETWORKS
        ]

    kinds: dict[str, Callable[[], list[dict[str, str]]]] = {
        "algorithms": algorithms,
        "topologies": topologies,
        "collectives": collectives,
    }
    if what is not None and what not in kinds:
        raise ConfigError("AHBM-C145", f"cannot list {what!r}", hint=f"one of {', '.join(kinds)}")
    found = {kind: rows() for kind, rows in kinds.items() if what in (None, kind)}
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for rows in found.values():
        table = _table(*rows[0])
        for row in rows:
            table.add_row(*row.values())
        _print(table)


@app.command("topology")
def topology_(
    name: Annotated[
        str | None, typer.Argument(help="Packaged topology, path, or SIP network; else the default.")
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Draw it into this file.")] = None,
    settings: Settings = None,
) -> None:
    """Describe a machine, and draw it."""
    from ahbm.topology import load_machine

    machine = load_machine(name, _overrides(settings))
    if svg is not None:
        try:
            svg.write_text(machine.svg(), encoding="utf-8")
        except OSError as error:
            raise ConfigError("AHBM-C141", f"cannot write {svg}: {error.strerror}") from error
    typer.echo(machine.describe())


@app.command()
def new(name: Annotated[str, typer.Argument(help="Name of the algorithm, a Python identifier.")]) -> None:
    """Write algorithms/NAME.py, its entry in ccl.yaml, and tests/test_NAME.py."""
    from ahbm.scaffold import new_algorithm

    for path in new_algorithm(name, Path()):
        typer.echo(f"wrote {path}")


def _table(*columns: str, title: str | None = None) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE, title_justify="left")
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left", no_wrap=True)
    return table


def _print(table: Any) -> None:
    from rich.console import Console

    # Names and paths are for copying: wider than the terminal rather than cut.
    Console(width=1000).print(table)


if __name__ == "__main__":
    main()
