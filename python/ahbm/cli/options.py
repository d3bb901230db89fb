"""Options that several commands share, in groups, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from ahbm.base.codes import CHECKS
from ahbm.cli import completion, progress
from ahbm.cli.app import spelled
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm.config.reading import Reading
    from ahbm.job.targets import Target
    from ahbm.runs.plans import Added
    from ahbm.table.cases import Sweep

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the topology or of ccl.yaml by its dotted path; repeatable.",
    ),
]
Topologies = Annotated[
    list[str] | None,
    typer.Option(
        "-t",
        "--topology",
        autocompletion=completion.topologies,
        help="Packaged topology, path of a topology.yaml, or the name of a SIP network.",
    ),
]
Ranks = Annotated[
    str | None,
    typer.Option("--ranks", metavar="N", help="The machine with this many SIPs, one rank on each; grids near square."),
]
Ccl = Annotated[Path | None, typer.Option("--ccl", help="Path of a ccl.yaml.")]
Graphs = Annotated[
    list[str] | None,
    typer.Option(
        "--collective_algorithm",
        "--collective-algorithm",
        metavar="[COLLECTIVE=]GRAPH",
        help="Jobs: an algorithm graph for the calls of as many ranks as it has; repeatable.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, errors too.")]
Dtype = Annotated[
    str,
    typer.Option(
        "-d",
        "--dtype",
        autocompletion=completion.dtypes,
        help="f16 bf16 f32 f64 f8e4m3 f8e5m2 i8..i64 u8..u64, or nccl-tests' names.",
    ),
]
OPS = ("sum", "prod", "min", "max", "avg")
Op = Annotated[str, typer.Option("--op", autocompletion=lambda: list(OPS), help=f"{' '.join(OPS)}.")]
Root = Annotated[int, typer.Option("-r", "--root", help="Root rank of rooted collectives.")]
Collective = Annotated[
    str, typer.Argument(help="all_reduce, all_gather, ...; see `ahbm list collectives`.", show_default=False)
]
CollectiveOrPlan = Annotated[
    str,
    typer.Argument(
        help="all_reduce, all_gather, ...; a plan (.xml, .json, .et); or a script that lowers one, with its arguments.",
        autocompletion=completion.collectives,
        show_default=False,
    ),
]


def algorithm_option(about: str) -> Any:
    """`-a/--algorithm`, of every command that takes algorithms."""
    return typer.Option("-a", "--algorithm", autocompletion=completion.algorithms, help=about)


Algorithms = Annotated[list[str] | None, algorithm_option("Name, or path of a module; repeatable.")]
Synthesized = Annotated[
    list[str] | None, typer.Option("--synth", help="Candidate: schedules by this method; repeatable.")
]
Check = Annotated[
    str | None,
    typer.Option("--check", help=f"all, or some of {','.join(CHECKS)}."),
]
Device = Annotated[
    bool, typer.Option("--device", help="Device tensors: one tile of the size on every cube (all_reduce).")
]
NoData = Annotated[bool, typer.Option("--no-data", help="Simulate the time only.")]
OfTable = Annotated[
    str | None,
    typer.Option(
        "--collective",
        autocompletion=completion.collectives,
        help="Of tables that do not say it, or that have several.",
    ),
]
Processes = Annotated[
    int | None,
    typer.Option("-j", "--jobs", min=1, max=4096, metavar="N", help="Processes that share the work."),
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="DIR", help="A folder or URL of rows, as of `ahbm sweep`; those in it are not run again."
    ),
]


SIZES = "256, 64K or 1M (powers of 1024), 1MiB, 1e6"
Size = Annotated[str | None, typer.Option("-b", "--bytes", "--size", help=f"Size of one rank's array: {SIZES}.")]


def output_option(about: str) -> Any:
    """`-o/--output`, of every command that writes what it is asked for."""
    return typer.Option("-o", "--output", help=about, callback=_no_operator)


def _no_operator(output: Path | None) -> Path | None:
    if output is not None and str(output) in OPS:
        hint = f"--op {output} is the operator; a file needs another name"
        raise ConfigError("AHBM-C146", f"-o {output}: -o is what to write", hint=hint)
    return output


Quirks = Annotated[bool, typer.Option("--quirks", help="Plans: follow the known defects of a format's runtime.")]
Limits = Annotated[
    list[str] | None, typer.Option("--limit", metavar="NAME=N", help="Plans: raise a limit; repeatable.")
]

Program = Annotated[
    str | None, typer.Option("--program", help="Scripts: which program, by name or position; else the last.")
]
Frontend = Annotated[
    str | None,
    typer.Option("--frontend", metavar="upstream", help="Scripts: lower with the installed package of the language."),
]


@dataclass(frozen=True, kw_only=True)
class Place:
    """The machine."""

    topologies: Topologies = None
    ranks: Ranks = None
    settings: Settings = None

    def places(self) -> list[Self]:
        """One machine each: every topology, with every number of ranks, with every value of the settings that are lists
        (`KEY=1,2`).

        Raises ConfigError: AHBM-C142 for settings that are none, C162 for ranks that are none.
        """
        counts: list[str | None] = [str(count) for count in parse_ranks(self.ranks)]
        topologies: list[str | None] = [*(self.topologies or ())]
        choices = [[f"{key}={value}" for value in values] for key, values in parse_settings(self.settings).items()]
        return [
            replace(self, topologies=None if topology is None else [topology], ranks=count, settings=list(settings))
            for topology in topologies or [None]
            for count in counts or [None]
            for settings in product(*choices)
        ]

    def _only(self) -> Self:
        found = self.places()
        if len(found) > 1:
            varied = {"-t": self.topologies or (), "--ranks": parse_ranks(self.ranks)}
            varied |= {f"--set {key}": values for key, values in parse_settings(self.settings).items()}
            names = ", ".join(name for name, values in varied.items() if len(values) > 1)
            raise ConfigError(
                "AHBM-C146",
                f"{names}: several values are several machines",
                hint="ahbm run and ahbm bench measure on each of them",
            )
        return found[0]

    @property
    def topology(self) -> str | None:
        """The name or path of the topology. Raises ConfigError (AHBM-C146) for several machines."""
        found = self._only().topologies
        return found[0] if found else None

    @property
    def overrides(self) -> dict[str, object]:
        """Dotted path -> value. Raises ConfigError: AHBM-C142, C162, and C146 for several machines."""
        from ahbm.config.topology import with_ranks

        only = self._only()
        found: dict[str, object] = {key: value for key, (value,) in parse_settings(only.settings).items()}
        return with_ranks(int(only.ranks), only.topology, found) if only.ranks else found


@dataclass(frozen=True, kw_only=True)
class Machine(Place):
    """The machine and its configuration."""

    ccl: Ccl = None


@dataclass(frozen=True, kw_only=True)
class Terms(Machine):
    """The computation, and the machine it runs on."""

    dtype: Dtype = "f16"
    op: Op = "sum"
    root: Root = 0


@dataclass(frozen=True, kw_only=True)
class Files:
    """The options of reading the files of plans."""

    slots: Annotated[
        str | None,
        typer.Option("--slots", help="Plans: messages a queue holds, a number or inf; 2 by default, 8 of LL."),
    ] = None
    quirks: Quirks = False
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Traces: leave out dependencies on nodes that do not exist.")
    ] = False
    limits: Limits = None
    program: Program = None
    frontend: Frontend = None

    @property
    def given_slots(self) -> int | None:
        """Depth of a plan's queues, -1 for no bound; None where none is given. Raises ConfigError (AHBM-C146)."""
        if self.slots is None or self.slots == "inf":
            return None if self.slots is None else -1
        if not re.fullmatch("[0-9]{1,10}", self.slots) or not 1 <= int(self.slots) < 2**32 - 1:
            raise ConfigError(
                "AHBM-C146", f"--slots {self.slots}: no depth of a queue", hint="--slots 2 or --slots inf"
            )
        return int(self.slots)

    @property
    def depth(self) -> int | None:
        """Depth of a plan's queues; None is no bound, 0 as the runtime has it. Raises ConfigError (AHBM-C146)."""
        from ahbm.source.plan import SLOTS

        given = self.given_slots
        return SLOTS if given is None else None if given < 0 else given

    @property
    def reading(self) -> Reading:
        """Raises ConfigError (AHBM-C147) for unknown limits."""
        from ahbm.config.reading import Reading, parse_limits

        return Reading(self.quirks, self.lenient, parse_limits(self.limits or ()))


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The options of reading the traces of jobs."""

    groups: Annotated[
        Path | None,
        typer.Option("--groups", metavar="FILE", help="Jobs: ranks of the process groups by name, as JSON."),
    ] = None
    step: Annotated[
        int | None,
        typer.Option("--step", min=0, metavar="N", help="Profiler's traces: only the step ProfilerStep#N."),
    ] = None
    host_gaps: Annotated[
        bool, typer.Option("--host-gaps", help="Profiler's traces: the host's time between launches counts.")
    ] = False
    symmetric: Annotated[
        bool, typer.Option("--symmetric", help="Profiler's traces: all ranks do what the one with a trace does.")
    ] = False
    replicas: Annotated[
        int | None,
        typer.Option("--replicas", min=1, metavar="N", help="Jobs: so many data-parallel replicas, not the recorded."),
    ] = None

    def of_jobs(self) -> dict[str, Any]:
        """Them as options of `ahbm.open`."""
        return {field.name: getattr(self, field.name) for field in fields(Recorded)}


def _named(text: str) -> tuple[str, str]:
    name, _, values = text.rpartition("=")
    return name, values


@dataclass(frozen=True, kw_only=True)
class Asked(Recorded, Files, Terms):
    """One collective or plan, and how it is run."""

    algorithms: Annotated[list[str] | None, algorithm_option("Name, or path of a module.")] = None
    size: Size = None
    protocol: Annotated[str | None, typer.Option("--protocol", help="Plans: Simple, LL or LL128.")] = None
    slice_bytes: Annotated[
        str | None, typer.Option("--slice", help="Plans: size of the largest message, or inf; else the protocol's.")
    ] = None
    instances: Annotated[int | None, typer.Option("--instances", min=1, help="Plans: parallel copies.")] = None
    lanes: Annotated[
        str | None,
        typer.Option("--lanes", help="Jobs: what runs side by side: device, streams, astra or unlimited."),
    ] = None
    compute: Annotated[
        list[str] | None,
        typer.Option(
            "--compute",
            metavar="TEXT=FACTOR",
            help="Jobs: computations of this name last so many times; TEXT=1,0.5: both.",
        ),
    ] = None
    no_fold: Annotated[
        bool, typer.Option("--no-fold", help="Jobs: every rank is simulated, also those that do what another does.")
    ] = False
    kind: Annotated[
        str | None,
        typer.Option("--as", metavar="KIND", help="Traces: job or algorithm, where the trace leaves it open."),
    ] = None

    def cells(self) -> list[Self]:
        """One run each: every algorithm on every machine, with every factor of computations. Raises as `places`."""
        given: list[str | None] = [*(self.algorithms or ())] or [None]
        scaled = [[f"{name}={one}" for one in many.split(",")] for name, many in map(_named, self.compute or ())]
        return [
            replace(place, algorithms=None if algorithm is None else [algorithm], compute=list(compute) or None)
            for place in self.places()
            for algorithm in given
            for compute in product(*scaled)
        ]

    def labels(self) -> list[str]:
        """What tells a cell from others, as it is given on the command line."""
        topology = [f"-t {name}" for name in self.topologies or ()]
        ranks = [f"--ranks {self.ranks}"] if self.ranks else []
        algorithm = [f"-a {name}" for name in self.algorithms or ()]
        return [*topology, *ranks, *algorithm, *(self.settings or ()), *(self.compute or ())]

    @property
    def algorithm(self) -> str | None:
        """The name or path of the algorithm. Raises ConfigError (AHBM-C146) for several."""
        given = self.algorithms or ()
        if len(given) > 1:
            hint = "ahbm run and ahbm bench measure each of them"
            raise ConfigError("AHBM-C146", "-a is given twice: several algorithms are several runs", hint=hint)
        return given[0] if given else None

    def options(self, *, device: bool = False, args: Sequence[str] = ()) -> dict[str, Any]:
        """The options as `ahbm.open` takes them. Raises ConfigError for values that are none."""
        from ahbm.base.elements import parse_dtype
        from ahbm.base.sizes import parse_size
        from ahbm.job.reading import parse_factor
        from ahbm.source.synthesis import WHOLE

        largest = WHOLE if self.slice_bytes == "inf" else parse_size(self.slice_bytes) if self.slice_bytes else None
        return dict(
            topology=self.topology,
            ccl=self.ccl,
            overrides=self.overrides,
            algorithm=self.algorithm,
            size=parse_size(self.size) if self.size is not None else None,
            dtype=parse_dtype(self.dtype),
            op=self.op,
            root=self.root,
            device=device,
            slots=self.given_slots,
            protocol=self.protocol,
            slice_bytes=largest,
            instances=self.instances,
            reading=self.reading,
            **self.of_jobs(),
            lanes=self.lanes,
            fold=not self.no_fold,
            factors=tuple(parse_factor(text) for text in self.compute or ()),
            kind=self.kind,
            args=args,
            program=self.program,
            frontend=self.frontend,
        )

    def open(self, target: str, *, device: bool = False, args: Sequence[str] = ()) -> Target:
        """`target`, a collective, a file, or a script with `args`, with these options. Raises as `ahbm.open`."""
        from ahbm.job.open import open_
        from ahbm.job.targets import Target

        found = open_(target, **self.options(device=device, args=args))
        assert isinstance(found, Target)
        return found


@dataclass(frozen=True, kw_only=True)
class AskedSmall(Asked):
    """`Asked`, of a small array where no size is given."""

    size: Size = "4K"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """From the first size to the last, or those that are listed."""

    begin: Annotated[str, typer.Option("-b", "--minbytes", help=f"First size: {SIZES}.")] = "1K"
    end: Annotated[str, typer.Option("-e", "--maxbytes", help="Last size.")] = "1M"
    factor: Annotated[int, typer.Option("-f", "--stepfactor", help="Factor between sizes.")] = 4
    sizes: Annotated[
        str | None, typer.Option("--sizes", metavar="A,B", help="These sizes, instead of -b, -e, -f and -i.")
    ] = None

    def of_sizes(self) -> dict[str, Any]:
        """Them as fields of a sweep. Raises ConfigError (AHBM-C147)."""
        from ahbm.base.sizes import parse_size

        listed = tuple(map(parse_size, self.sizes.split(","))) if self.sizes is not None else ()
        ends = {"begin": parse_size(self.begin), "end": parse_size(self.end)}
        return {**ends, "factor": self.factor, "listed": listed}

    def refuse_sizes_given_twice(self, context: Any) -> None:
        """Raises ConfigError (AHBM-C146) for --sizes beside the options that make sizes."""
        made = ("begin", "end", "factor", "step")
        given = given_of(context, made)
        if self.sizes is not None and given:
            raise ConfigError("AHBM-C146", f"--sizes and {', '.join(given)} are both given", hint="give one of them")


@dataclass(frozen=True, kw_only=True)
class Swept(Sizes, Terms):
    """One collective over sizes."""

    algorithms: Algorithms = None
    no_data: NoData = False
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", metavar="NAME=A,B", help="Scripts: values of one of its arguments; repeatable."),
    ] = None
    quirks: Quirks = False
    program: Program = None
    frontend: Frontend = None
    store: Store = None
    jobs: Processes = None

    @property
    def runs(self) -> dict[str, Any]:
        """How the cases run, as `ahbm.table.running.attempt` takes it."""
        return {"tell": progress.at, "jobs": self.jobs, "store": self.store}

    def sweeps(self, target: str, args: Sequence[str] = (), **how: Any) -> list[Sweep]:
        """`sweep` on every machine. Raises as it."""
        return [place.sweep(target, args, **how) for place in self.places()]

    def sweep(
        self,
        target: str,
        args: Sequence[str] = (),
        *,
        step: str = "0",
        device: bool = False,
        check: str | None = None,
    ) -> Sweep:
        """The sweep of a collective, of a plan, or of a script with `args`, in all of its variations.

        Raises ConfigError for what is no sweep.
        """
        from ahbm.base.elements import parse_dtype
        from ahbm.base.sizes import parse_size
        from ahbm.table.cases import Sweep

        collective, algorithms, overrides = target, tuple(self.algorithms or ()), self.overrides
        added, notes = self._added(target, args), dict[str, str]()
        if added is not None:
            collective, overrides, notes = added.collective, added.overrides, dict(added.notes)
            algorithms = (*added.algorithms, *algorithms)
        return Sweep(
            collective,
            **self.of_sizes(),
            step=parse_size(step),
            dtype=parse_dtype(self.dtype),
            op=self.op,
            root=self.root,
            algorithms=algorithms,
            topology=self.topology,
            ccl=self.ccl,
            overrides=overrides,
            data=not self.no_data,
            device=device,
            check=check or False,
            notes=notes,
        )

    def calibrated_for(self) -> str:
        """The collective that a calibrated machine was measured with. Raises ConfigError (AHBM-C105) on others."""
        from ahbm.config.topology import load_machine

        rows = load_machine(self.places()[0].topology).bands
        if not rows:
            raise ConfigError(
                "AHBM-C105", "no collective is named", hint="name one, such as all_reduce; calibrated machines know it"
            )
        return rows[0][0]

    def _added(self, target: str, args: Sequence[str]) -> Added | None:
        from ahbm.config.reading import Reading
        from ahbm.dsl.script import Script, imports_language
        from ahbm.dsl.variation import parse_ranges, varied
        from ahbm.job.open import is_plan
        from ahbm.runs.plans import Options, added, free_name

        options = Options(reading=Reading(self.quirks))
        if imports_language(target):
            script = Script(target, tuple(args), self.program, self.frontend)
            ranges = parse_ranges(self.vary or ())
            name = free_name(target, self.ccl, self.overrides)
            found = {f"{name},{label}" if label else name: one for label, one in varied(script, ranges)}
            return added(found, self.topology, self.overrides, options)
        if self.vary or self.program or self.frontend:
            raise ConfigError("AHBM-C146", f"{target} is no script: it takes no --vary, --program or --frontend")
        if not is_plan(target):
            if self.quirks:
                raise ConfigError("AHBM-C146", f"{target} is no plan: it has no --quirks")
            return None
        return added({free_name(target, self.ccl, self.overrides): target}, self.topology, self.overrides, options)


def refuse_given(context: Any, why: str, names: Sequence[str]) -> None:
    """Raises ConfigError (AHBM-C146) for those of the parameters `names` that are on the command line."""
    given = given_of(context, names)
    if given:
        raise ConfigError("AHBM-C146", f"{why}: without {', '.join(given)}")


def given_of(context: Any, names: Sequence[str]) -> list[str]:
    """Those of the parameters `names` that are on the command line, each by the name by which it is there."""
    own = {parameter.name for parameter in context.command.params}
    return [spelled(context, name) for name in names if name in own and is_given(context, name)]


def is_given(context: Any, name: str) -> bool:
    """Whether a parameter is on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def parse_settings(settings: Sequence[str] | None) -> dict[str, list[str]]:
    """Dotted path -> the values of each KEY=VALUE or KEY=VALUE,VALUE. Raises ConfigError (AHBM-C142).

    A value with brackets, braces, quotes or spaces is one value, as YAML spells it.
    """
    found: dict[str, list[str]] = {}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise ConfigError("AHBM-C142", f"--set {setting}: no KEY=VALUE", hint="--set system.sips.count=4")
        if key in found:
            raise ConfigError(
                "AHBM-C142", f"--set {key} is given twice", hint=f"--set {key}=A,B where several are meant"
            )
        found[key] = value.split(",") if re.fullmatch(r"[^\s,\[\]{}'\"]+(,[^\s,\[\]{}'\"]+)+", value) else [value]
    return found


def parse_what_if(given: Sequence[str] | None) -> tuple[int | None, list[dict[str, object]]]:
    """The budget of `Explanation.advise`, and the changes of `--what-if`. Raises ConfigError (AHBM-C142)."""
    from ahbm.runs.advice import BUDGET

    budgets: dict[str, int | None] = {"all": None, "none": 0}
    budget: int | None = BUDGET
    changes: list[dict[str, object]] = []
    for text in given or ():
        key, equals, value = text.partition("=")
        if text in budgets:
            budget = budgets[text]
        elif not equals or not key or not value:
            raise ConfigError(
                "AHBM-C142",
                f"--what-if {text}: no KEY=VALUE, all or none",
                hint="--what-if system.sips.link.bandwidth_gbs=2x",
            )
        else:
            changes.append({key: value})
    return budget, changes


def parse_ranks(text: str | None) -> list[int]:
    """The numbers of ranks in `2,4,8`; none for no text. Raises ConfigError (AHBM-C162)."""
    counts = [count.strip() for count in text.split(",")] if text else []
    if any(not re.fullmatch("0*[1-9][0-9]{0,9}", count) for count in counts):
        raise ConfigError("AHBM-C162", f"--ranks {text}: no list of numbers", hint="--ranks 2,4,8")
    return [int(count) for count in counts]
