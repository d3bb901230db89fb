"""`ahbm tune`: tables for the libraries that choose algorithms, and what such a table loses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ahbm.cli import completion, progress
from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import (
    Dtype,
    Json,
    Machine,
    Processes,
    Sizes,
    Synthesized,
    algorithm_option,
    given_of,
    output_option,
)
from ahbm.cli.output import fail_where
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm._core import Machine as AnyMachine
    from ahbm.choose.card import Card
    from ahbm.choose.catalogue import Catalogue
    from ahbm.choose.evaluation import Evaluation
    from ahbm.choose.measured import Measurements


@dataclass(frozen=True, kw_only=True)
class _Tuned(Sizes, Machine):
    """Machines, sizes and candidates."""

    end: Annotated[str, typer.Option("-e", "--maxbytes", help="Last size.")] = "16M"
    sizes: Annotated[
        str | None, typer.Option("--sizes", metavar="A,B", help="These sizes, instead of -b, -e and -f.")
    ] = None
    dtype: Dtype = "f16"
    algorithms: Annotated[
        list[str] | None,
        algorithm_option("Candidate: name, module or plan; repeatable. Else all configured, and all of --synth."),
    ] = None
    synth: Synthesized = None

    def listed(self, collective: str) -> list[int]:
        """The sizes. Raises ConfigError: AHBM-C140, C147."""
        from ahbm.table.cases import Sweep

        return list(Sweep(collective, **self.of_sizes()).asked())

    def machines(self) -> tuple[list[AnyMachine], dict[str, object]]:
        """The machines, and the overrides of ccl.yaml. Raises ConfigError, TopologyError."""
        from ahbm.config.ccl import split_overrides
        from ahbm.config.topology import load_machine

        split = [(place.topology, *split_overrides(place.overrides)) for place in self.places()]
        of_ccl = split[0][2]
        if any(other != of_ccl for _, _, other in split):
            what = "several values of a key of ccl.yaml are several catalogues"
            raise ConfigError("AHBM-C146", what, hint="tune each of them into a folder of its own")
        return [load_machine(topology, of_machine) for topology, of_machine, _ in split], of_ccl

    def catalogue(self, collective: str, machines: Sequence[AnyMachine], overrides: dict[str, object]) -> Catalogue:
        """The candidates: those that are named, else all. Raises as `Catalogue.of`."""
        from ahbm.choose.catalogue import Catalogue

        return Catalogue.of(collective, self.named(collective, machines, overrides), ccl=self.ccl, overrides=overrides)

    def named(self, collective: str, machines: Sequence[AnyMachine], overrides: dict[str, object]) -> list[str] | None:
        """The candidates' names; with --synth alone, those that are configured before them; None for all."""
        from ahbm.choose.catalogue import configured
        from ahbm.source.synth import SYNTH

        synthesized = [f"{SYNTH}{method}" for method in self.synth or ()]
        if self.algorithms or not synthesized:
            return [*(self.algorithms or ()), *synthesized] or None
        return [*configured(collective, machines, self.ccl, overrides), *synthesized]


@dataclass(frozen=True, kw_only=True)
class _Written:
    """What files say."""

    budget: Annotated[int | None, typer.Option("--budget", min=1, metavar="RUNS", help="The most simulations.")] = None
    channels: Annotated[
        int | None,
        typer.Option("--channels", min=1, max=1024, help="Channels for NCCL; else 16, or as measured."),
    ] = None
    protocol: Annotated[
        str | None,
        typer.Option("--protocol", help="Protocol to write for NCCL: ll, ll128, simple; else the quickest."),
    ] = None
    measured: Annotated[
        list[str] | None,
        typer.Option(
            "--measured",
            metavar="[ALGORITHM/PROTOCOL=]FILE",
            help="Measured times of NCCL by itself, or of what it was made to run, by which its lines are judged; "
            "repeatable.",
            show_default=False,
        ),
    ] = None
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            min=1,
            max=1 << 20,
            help="Computers among which the ranks of a machine are; else its nodes.",
            show_default=False,
        ),
    ] = None

    def measurements(self) -> Measurements:
        """What was measured. Raises as `ahbm.choose.measured.read`."""
        from ahbm.choose.measured import read

        return read(self.measured or ())


@app.command(
    page="choose",
    examples=(
        "ahbm tune all_reduce -t npu_ring_8 -t npu_switch_8 -o tuned",
        "ahbm tune --evaluate tuned/nccl_tuner.csv -t npu_ring_8 --sizes 4K,64K,1M",
    ),
)
@grouped
def tune(
    context: typer.Context,
    collective: Annotated[
        str | None,
        typer.Argument(
            help="all_reduce, all_gather, ...; with --evaluate, of a file for several.",
            autocompletion=completion.collectives,
            show_default=False,
        ),
    ] = None,
    *,
    tuned: _Tuned,
    evaluate: Annotated[
        Path | None,
        typer.Option("--evaluate", metavar="FILE", help="Say what this tuning file loses, and where; write nothing."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="Of --evaluate: the file's format; else its content shows it."),
    ] = None,
    written: _Written,
    output: Annotated[Path | None, output_option("The folder of the files.")] = None,
    jobs: Processes = None,
    as_json: Json = False,
) -> None:
    """Write tuning files of NCCL, NCCLX, MSCCL, MSCCL++ and UCC, or say what such a file loses.

    Times every algorithm at every size on every machine, and writes for each number of ranks the quickest of each range
    of sizes: a ccl.yaml, the tables of the libraries, plans of what NCCL cannot run, and a card with what they lose.
    An algorithm whose result is wrong is not chosen where it is, and the exit code is 8.
    """
    tuned.refuse_sizes_given_twice(context)
    if evaluate is not None:
        for name in given_of(context, ("budget", "channels", "protocol")):
            raise ConfigError("AHBM-C146", f"--evaluate takes no {name}", hint="they are of files that are written")
        for name in given_of(context, ("output",)):
            raise ConfigError("AHBM-C146", f"--evaluate writes nothing: it takes no {name}")
        found = _evaluated(evaluate, collective, tuned, format, written, jobs, as_json)
        progress.clear()
        _print_evaluation(found, as_json)
        fail_where(bool(found.wrong))
        return
    if format is not None:
        raise ConfigError("AHBM-C146", "--format is of --evaluate FILE", hint="tune writes all formats")
    if collective is None:
        hint = "ahbm tune all_reduce -o DIR, or ahbm tune --evaluate FILE"
        raise ConfigError("AHBM-C146", "neither a collective nor a file is given", hint=hint)
    if output is None:
        raise ConfigError("AHBM-C146", "ahbm tune writes its files into a folder", hint="name it: -o tuned")
    saved = _write(collective, tuned, written, output, jobs, as_json)
    fail_where(bool(saved.tuned.wrong))


def _evaluated(
    file: Path,
    collective: str | None,
    tuned: _Tuned,
    format: str | None,
    written: _Written,
    jobs: int | None,
    as_json: bool,
) -> Evaluation:
    from ahbm.base.elements import parse_dtype
    from ahbm.choose.evaluation import evaluate
    from ahbm.choose.tune import check_collective

    if collective is not None:
        check_collective(collective)
    machines, overrides = tuned.machines()
    return evaluate(
        file,
        machines,
        tuned.listed(collective or "all_reduce"),
        collective=collective,
        format=format,
        algorithms=tuned.named(collective or "all_reduce", machines, overrides),
        ccl=tuned.ccl,
        overrides=overrides,
        dtype=parse_dtype(tuned.dtype),
        nodes=written.nodes,
        measured=written.measurements(),
        jobs=jobs,
        tell=_tells(as_json),
    )


def _tells(as_json: bool) -> Callable[[object], None]:
    return lambda now: progress.at(str(now), lines=not as_json)


def _print_evaluation(found: Evaluation, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
        return
    for line in found.lines():
        typer.echo(line)
    for finding in found.read.findings:
        typer.echo(str(finding))


def _write(collective: str, tuned: _Tuned, written: _Written, output: Path, jobs: int | None, as_json: bool) -> Card:
    from ahbm.base.elements import parse_dtype
    from ahbm.choose.files import save
    from ahbm.choose.names import PROTOCOLS
    from ahbm.choose.tune import Given, check_collective, tune

    check_collective(collective)
    protocol, nodes = written.protocol, written.nodes
    if protocol is not None and protocol not in PROTOCOLS:
        hint = f"one of {', '.join(PROTOCOLS)}"
        raise ConfigError("AHBM-C146", f"--protocol {protocol[:40]}: no protocol of NCCL", hint=hint)
    machines, overrides = tuned.machines()
    for machine in machines:
        if nodes and machine.sips % nodes:
            raise ConfigError("AHBM-C146", f"--nodes {nodes} does not divide the {machine.sips} ranks")
    found = tune(
        tuned.catalogue(collective, machines, overrides),
        machines,
        tuned.listed(collective),
        collective=collective,
        dtype=parse_dtype(tuned.dtype),
        given=Given(written.channels, protocol, nodes),
        measured=written.measurements(),
        budget=written.budget,
        jobs=jobs,
        tell=_tells(as_json),
    )
    progress.at("running the files that are written")
    saved = save(found, output, jobs)
    progress.clear()
    files: dict[str, Any] = {"written": [str(path) for path in saved.files]}
    if as_json:
        typer.echo(json.dumps(saved.to_json() | files, indent=2))
    else:
        typer.echo("\n".join(_lines(saved)))
    return saved


def _lines(saved: Card) -> Iterator[str]:
    yield from saved.lines()
    for path in saved.files:
        yield f"# written {path}"
