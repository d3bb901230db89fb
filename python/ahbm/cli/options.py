"""Options that several commands share, in groups, and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm._core import Plan
    from ahbm.bench import Sweep
    from ahbm.plans import Options
    from ahbm.reading import Reading
    from ahbm.replay import JobReport
    from ahbm.report import Report
    from ahbm.timed import TimeReport
    from ahbm.verify import Case

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
LongOp = Annotated[str, typer.Option("--op", help="sum prod min max avg.")]
"""For commands whose -o is --output."""
Root = Annotated[int, typer.Option("-r", "--root", help="Root rank of rooted collectives.")]
Collective = Annotated[
    str, typer.Argument(help="all_reduce, all_gather, ...; see `ahbm list collectives`.", show_default=False)
]
CollectiveOrPlan = Annotated[
    str, typer.Argument(help="all_reduce, all_gather, ...; or a plan (.xml, .json, .et).", show_default=False)
]
Algorithms = Annotated[
    list[str] | None, typer.Option("-a", "--algorithm", help="Name, or path of a module; repeatable.")
]
Check = Annotated[
    str | None,
    typer.Option("--check", help="all, or some of race,uninit,leftover,deadlock,result,divergence."),
]
Device = Annotated[
    bool, typer.Option("--device", help="Device tensors: one tile of the size on every cube (all_reduce).")
]
NoData = Annotated[bool, typer.Option("--no-data", help="Simulate the time only.")]
Size = Annotated[str | None, typer.Option("-b", "--bytes", "--size", help="Size of one rank's array: 256, 64K, 1M.")]

Quirks = Annotated[bool, typer.Option("--quirks", help="Plans: follow the known defects of a format's runtime.")]
Limits = Annotated[
    list[str] | None, typer.Option("--limit", metavar="NAME=N", help="Plans: raise a limit; repeatable.")
]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine and its configuration."""

    topology: Topology = None
    ccl: Ccl = None
    settings: Settings = None

    @property
    def overrides(self) -> dict[str, object]:
        """Dotted path -> value. Raises ConfigError (AHBM-C142)."""
        return parse_overrides(self.settings)


@dataclass(frozen=True, kw_only=True)
class Terms(Machine):
    """What is computed, and on what."""

    dtype: Dtype = "f16"
    op: Op = "sum"
    root: Root = 0


@dataclass(frozen=True, kw_only=True)
class Files:
    """How the files of plans are read."""

    slots: Annotated[
        str | None, typer.Option("--slots", help="Plans: messages a queue holds, a number or inf; 2 by default.")
    ] = None
    quirks: Quirks = False
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Traces: leave out dependencies on nodes that do not exist.")
    ] = False
    limits: Limits = None

    @property
    def depth(self) -> int | None:
        """Depth of a plan's queues; None is no bound. Raises ConfigError (AHBM-C146)."""
        from ahbm.config import SLOTS

        if self.slots is None or self.slots == "inf":
            return SLOTS if self.slots is None else None
        if not self.slots.isascii() or not self.slots.isdigit() or not 1 <= int(self.slots) < 2**32 - 1:
            raise ConfigError(
                "AHBM-C146", f"--slots {self.slots}: no depth of a queue", hint="--slots 2 or --slots inf"
            )
        return int(self.slots)

    @property
    def reading(self) -> Reading:
        """Raises ConfigError (AHBM-C147) for unknown limits."""
        from ahbm.reading import Reading, parse_limits

        return Reading(self.quirks, self.lenient, parse_limits(self.limits or ()))


@dataclass(frozen=True, kw_only=True)
class Asked(Files, Terms):
    """One collective or plan, and how it is run."""

    algorithm: Annotated[str | None, typer.Option("-a", "--algorithm", help="Name, or path of a module.")] = None
    size: Size = None
    protocol: Annotated[str | None, typer.Option("--protocol", help="Plans: Simple, LL or LL128.")] = None
    slice_bytes: Annotated[
        str | None, typer.Option("--slice", help="Plans: size of the largest message, or inf; else the protocol's.")
    ] = None
    instances: Annotated[int | None, typer.Option("--instances", min=1, help="Plans: parallel copies.")] = None
    groups: Annotated[
        Path | None,
        typer.Option("--groups", metavar="FILE", help="Jobs: ranks of the process groups by name, as JSON."),
    ] = None

    @property
    def nbytes(self) -> int | None:
        """Size of one rank's array."""
        from ahbm.bench import parse_size

        return parse_size(self.size) if self.size is not None else None

    def case(self, target: str, *, device: bool = False) -> Case:
        """`target`, a collective or the file of a plan, as something to run; with `device`, on device tensors.

        Raises ConfigError (AHBM-C146) for options that do not go with it, and as `ahbm.run`.
        """
        from ahbm import DPPolicy, plans
        from ahbm.bench import parse_dtype
        from ahbm.measure import Arguments, prepare

        arguments = Arguments(
            dtype=parse_dtype(self.dtype), op=self.op, root=self.root, overrides=self.overrides, ccl=self.ccl
        )
        if device:
            arguments |= Arguments(bytes_per_pe=self.nbytes, placement=DPPolicy(cube="row_wise"))
        else:
            arguments |= Arguments(bytes_per_rank=self.nbytes)
        if is_plan(target):
            if self.algorithm is not None or self.root != 0 or device:
                raise ConfigError("AHBM-C146", f"{target} is a plan: it takes no --algorithm, --root or --device")
            return plans.prepare(target, self.topology, self._options(self.depth), **arguments)
        self.refuse_plan_options()
        return prepare(target, self.algorithm, self.topology, **arguments)

    def run(self, target: str, *, data: bool = True, check: str | None = None) -> Report | TimeReport | JobReport:
        """Runs `target`; a job, or a plan without a known result, for its time only. Raises as `case`."""
        from ahbm import plans, timed
        from ahbm.bench import parse_dtype
        from ahbm.lowering import has_known_result
        from ahbm.measure import measure

        if not is_plan(target):
            return measure(self.case(target), data=data, check=check or False)
        needs_size = ConfigError("AHBM-C146", f"{target} runs at some size", hint="--size 1M")
        if self.size is None and target.endswith(".xml"):
            raise needs_size
        plan = self.reading.read(target)
        job = self._replay(plan, target)
        if job is not None:
            if check is not None:
                raise ConfigError("AHBM-C146", f"{target} is a job, which runs for its time only: no --check")
            return job
        if not plan.buffers and (self.protocol, self.instances, self.slice_bytes) != (None,) * 3:
            raise ConfigError("AHBM-C146", f"{target} names no buffers: it has no protocol, slices or instances")
        if self.slots is not None and not plan.queues:
            raise ConfigError("AHBM-C146", f"{target} has no queues: it runs without --slots")
        if plan.buffers and self.size is None:
            raise needs_size
        if plan.buffers and has_known_result(plan):
            return measure(self.case(target), data=data, check=check or False)
        if check is not None:
            raise ConfigError(
                "AHBM-C146",
                f"{target} runs for its time only: --check is for plans with a known result",
                hint="ahbm check FILE looks at its chunks, messages and orders",
            )
        return timed.run(
            plan,
            plans.label(target),
            self.topology,
            self._options(self.depth if plan.buffers or self.slots is not None else None),
            nbytes=self.nbytes,
            dtype=parse_dtype(self.dtype) if plan.buffers else "u8",
            op=self.op,
            overrides=self.overrides,
            ccl=self.ccl,
        )

    def _replay(self, plan: Plan, target: str) -> JobReport | None:
        from ahbm import plans, replay
        from ahbm.bench import parse_dtype
        from ahbm.session import Setup

        setup = Setup(self.topology, self.ccl, self.overrides or None, self.algorithm)
        job = replay.replay(
            plan, plans.label(target), setup, groups=self.groups, dtype=parse_dtype(self.dtype), op=self.op
        )
        own = (self.size, self.slots, self.protocol, self.slice_bytes, self.instances)
        if job is not None and own != (None,) * 5:
            options = "--size, --slots, --protocol, --slice or --instances"
            raise ConfigError("AHBM-C146", f"{target} is a job: it takes no {options}")
        if job is None and self.groups is not None:
            raise ConfigError("AHBM-C146", f"{target} is no job: it takes no --groups")
        return job

    def refuse_plan_options(self) -> None:
        """Raises ConfigError (AHBM-C146) for what only plans have."""
        if (self.slots, self.protocol, self.instances, self.slice_bytes, self.limits, self.groups) != (None,) * 6 or (
            self.lenient or self.quirks
        ):
            options = "--slots, --protocol, --slice, --instances, --groups, --limit, --lenient and --quirks"
            raise ConfigError("AHBM-C146", f"{options} are for plans")

    def _options(self, depth: int | None) -> Options:
        from ahbm.bench import parse_size
        from ahbm.config import WHOLE
        from ahbm.plans import Options

        largest = WHOLE if self.slice_bytes == "inf" else parse_size(self.slice_bytes) if self.slice_bytes else None
        return Options(depth, self.protocol, self.instances or 1, largest, self.reading)


@dataclass(frozen=True, kw_only=True)
class AskedSmall(Asked):
    """`Asked`, of a small array where no size is given."""

    size: Size = "4K"


@dataclass(frozen=True, kw_only=True)
class Swept(Terms):
    """One collective over sizes."""

    begin: Annotated[str, typer.Option("-b", "--minbytes", help="First size.")] = "1K"
    end: Annotated[str, typer.Option("-e", "--maxbytes", help="Last size.")] = "1M"
    factor: Annotated[int, typer.Option("-f", "--stepfactor", help="Factor between sizes.")] = 4
    algorithms: Algorithms = None
    no_data: NoData = False

    def sweep(self, collective: str, *, step: str = "0", device: bool = False, check: str | None = None) -> Sweep:
        """Raises ConfigError for what is no sweep."""
        from ahbm.bench import Sweep, parse_dtype, parse_size

        return Sweep(
            collective,
            parse_size(self.begin),
            parse_size(self.end),
            self.factor,
            parse_size(step),
            dtype=parse_dtype(self.dtype),
            op=self.op,
            root=self.root,
            algorithms=tuple(self.algorithms or ()),
            topology=self.topology,
            ccl=self.ccl,
            overrides=self.overrides,
            data=not self.no_data,
            device=device,
            check=check or False,
        )


def parse_overrides(settings: Sequence[str] | None) -> dict[str, object]:
    """Dotted path -> value of each KEY=VALUE. Raises ConfigError (AHBM-C142)."""
    found: dict[str, object] = {}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise ConfigError("AHBM-C142", f"--set {setting}: no KEY=VALUE", hint="--set system.sips.count=4")
        found[key] = value
    return found


def is_case(target: str) -> bool:
    """Whether this is a collective or the file of a plan, by its name."""
    from ahbm.collectives import COLLECTIVES

    return target in COLLECTIVES or is_plan(target)


def is_plan(target: str) -> bool:
    """Whether this is the file of a plan, by its name, or the prefix of a trace."""
    from ahbm.reading import SUFFIXES

    return target.endswith(SUFFIXES) or Path(f"{target}.0.et").is_file()
