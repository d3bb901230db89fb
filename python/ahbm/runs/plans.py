"""Plans: algorithms that are files of other projects instead of kernels (`algorithms.<name>.plan` in ccl.yaml,
`ahbm run FILE`).

A plan works on whole arrays: rank r's operand and result stand in the memory of SIP r, and are one memory where the
plan runs in place. `docs/imports.md` tells what is supported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from os.path import isdir, isfile
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from ahbm._core import Machine, Plan, Workload, convert_plan, is_pytorch_trace, trace_sort
from ahbm.base.arguments import checked, whole
from ahbm.base.elements import element
from ahbm.base.load import is_prefix
from ahbm.base.sizes import parse_size
from ahbm.base.store import store, writing
from ahbm.config.ccl import CclConfig, entry_overrides, split_overrides, unnamed_entry
from ahbm.config.reading import Reading
from ahbm.config.topology import load_machine, sized
from ahbm.core.emulator import Emulator
from ahbm.dsl.script import Script
from ahbm.errors import AhbmError, ConfigError, UnsupportedError
from ahbm.runs import knobs, measure
from ahbm.runs.keywords import spelled
from ahbm.source import dsl
from ahbm.source.function import AnyAlgorithm, as_algorithm
from ahbm.source.plan import PROTOCOLS, SLOTS, UNBOUNDED, PlanOptions, made_for, read, runnable, stated_bytes

if TYPE_CHECKING:
    from ahbm.check.case import Case
    from ahbm.config.settings import Queues
    from ahbm.runs.keywords import Arguments
    from ahbm.runs.report import Report


OWN = {"mscclpp": ".json", "msccl": ".xml"}
"""Language of a program -> the format that its compiler writes."""


@dataclass(frozen=True)
class Options(PlanOptions):
    """Options of running the plan in a file; in ccl.yaml, keys beside `plan:`."""

    slots: int | None = SLOTS
    """Messages a queue holds; None for no bound, 0 for what the runtime has for the protocol."""

    def queues(self, queues: Queues) -> Queues:
        """`queues` of this depth."""
        return queues._replace(n_slots=UNBOUNDED if self.slots is None else self.slots)

    def entry(self) -> dict[str, object]:
        """The keys of an entry of ccl.yaml."""
        found: dict[str, object] = {
            "n_slots": UNBOUNDED if self.slots is None else self.slots or None,
            "instances": self.instances,
            "protocol": self.protocol,
            "slice_bytes": self.slice_bytes,
            "collective": self.collective,
        }
        return {key: value for key, value in found.items() if value is not None} | self.reading.entry()


DEFAULT_BYTES = 1 << 20
"""Size of a run of which nobody says the size, rounded down to what the plan takes."""
MOST_DATA = 64 << 20
"""Bytes of the arrays of all ranks that a run moves though nobody asked for a size."""


def is_file(algorithm: str) -> bool:
    """Whether the name of an algorithm is the file of a plan, or a script that lowers one."""
    return not {"module", "synth"} & unnamed_entry(algorithm).keys()


def source_of(file: str) -> str | Script:
    """The file of a plan, or the script that lowers one."""
    return Script(file) if file.endswith(".py") else file


def default_bytes(plan: Plan, dtype: str = "f16", instances: int = 1) -> int:
    """The largest size up to `DEFAULT_BYTES` that the plan takes in `instances` copies, or the least one."""
    unit = plan.unit(element(dtype).storage.itemsize) * instances
    return max(DEFAULT_BYTES // unit, 1) * unit


def usual_bytes(
    plan: Plan, file: str | Path | Script, dtype: str = "f16", instances: int = 1, *, data: bool = True
) -> tuple[int, str]:
    """The size of a run of which nobody says the size, and a note of it: the size for which a synthesizer made its
    schedule, else `default_bytes`; that also for a run with data whose arrays would be more than `MOST_DATA`."""
    bytes_, ps = made_for(plan, file)
    unit = plan.unit(element(dtype).storage.itemsize) * instances
    made = (bytes_ or 0) // unit * unit
    own = "" if ps is None else f", in {ps / 1000:,.2f} ns by its own count"
    if made and (made * plan.ranks <= MOST_DATA or not data):
        return made, f"{made} B per rank: the size for which the schedule was made{own}"
    found = default_bytes(plan, dtype, instances)
    if made:
        return (
            found,
            f"{found} B per rank: the schedule was made for {made} B{own}, which --no-data runs",
        )
    return found, f"{found} B per rank: no size was given"


@spelled
@checked
def prepare(
    file: str | Path | Script,
    topology: str | Path | Machine | None = None,
    options: Options = Options(),
    **arguments: Unpack[Arguments],
) -> Case:
    """The plan in `file`, or of a script, on the SIPs of its ranks, as a case to measure, like
    `ahbm.runs.measure.prepare`.

    Its root is the plan's, and without a size it has `usual_bytes`. Raises UnsupportedError: AHBM-U233 for a trace
    without buffers, AHBM-U113 for a plan whose collective has no known result (both run for their time with
    `ahbm.runs.timed.run`); and as `ahbm.runs.measure.prepare`.
    """
    plan = runnable(file, options.reading, options.collective)
    if arguments.get("size") is None:
        stated = stated_bytes(file, options.reading, options.collective)
        usual, _ = usual_bytes(plan, file, arguments.get("dtype", "f16"), options.instances)
        arguments["size"] = stated or usual
    name = free_name(file, arguments.get("ccl"), arguments.get("overrides"))
    settings = settings_of(file, name, options, plan.ranks)
    arguments["overrides"] = sized(plan.ranks, topology, arguments.get("overrides")) | settings
    arguments["root"] = plan.root or 0
    return measure.prepare(plan.collective, name, topology, **arguments)


def _with_knobs(
    file: str | Path | Script,
    options: Options,
    topology: str | Path | Machine | None,
    overrides: Mapping[str, object] | None,
) -> tuple[Options, dict[str, object], tuple[str, ...]]:
    """`options` and `overrides` of a plan under the knobs beside its file, where `options` leave them open, and a note
    of what they do. Raises FormatError (AHBM-F188, F199) for knobs that are none, or of another program."""
    found = None if isinstance(file, Script) else knobs.read(file)
    if isinstance(file, Script) or found is None:
        return options, dict(overrides or {}), ()
    plan = runnable(file, options.reading)
    sizes = sized(plan.ranks, topology, overrides)
    applied = knobs.apply(found, plan, load_machine(topology, split_overrides(sizes)[0]), file)
    modelled = applied.modelled
    changed = replace(
        options,
        protocol=modelled.protocol and PROTOCOLS[modelled.protocol],
        instances=modelled.channels or options.instances,
        slice_bytes=modelled.chunk_bytes,
    )
    return changed, dict(overrides or {}) | dict(applied.overrides), (applied.note,)


def settings_of(file: str | Path | Script, name: str, options: Options, ranks: int | None) -> dict[str, object]:
    """Overrides of ccl.yaml that make the plan in `file` the algorithm `name`. ranks: those that it is to run on; None
    leaves that open."""
    if isinstance(file, Script):
        source = dsl.entry(replace(file, path=str(Path(file.path).absolute())))
    else:
        source = {"plan": str(Path(file).absolute())}
    return entry_overrides(name, source | ({} if ranks is None else {"world_size": ranks}) | options.entry())


@dataclass(frozen=True)
class Added:
    """Plans as algorithms of a sweep."""

    collective: str
    algorithms: tuple[str, ...]
    """Their names, in order."""
    overrides: dict[str, object]
    """Of the topology and of ccl.yaml: with the plans, on SIPs for all of their ranks."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """By algorithm, what the knobs beside it do."""


def added(
    sources: Mapping[str, str | Path | Script],
    topology: str | Path | Machine | None = None,
    overrides: Mapping[str, object] | None = None,
    options: Options = Options(),
    beside: bool = False,
) -> Added:
    """The plans in `sources`, by name, as algorithms, under the knobs beside them. `beside`: with other algorithms.

    Raises ConfigError (AHBM-C178) for plans of several collectives or numbers of ranks, and for knobs that change the
    machine on which other algorithms run; and as `prepare`.
    """
    found = dict(overrides or {})
    kinds: dict[tuple[str, int], str] = {}
    notes: dict[str, str] = {}
    for name, source in sources.items():
        plan = runnable(source, options.reading)
        kinds.setdefault((plan.collective, plan.ranks), name)
        own, changed, label = _with_knobs(source, options, topology, overrides)
        if (beside or len(sources) > 1) and changed != dict(overrides or {}):
            raise ConfigError(
                "AHBM-C178",
                f"the knobs of {name} change the machine, on which other algorithms run too",
                hint="measure it alone, or move its .knobs.json away",
            )
        notes.update((name, note) for note in label)
        found |= changed | settings_of(source, name, own, plan.ranks)
    (collective, ranks), *others = kinds
    for other in others:
        raise ConfigError(
            "AHBM-C178",
            f"{kinds[collective, ranks]} is {collective} of {ranks} ranks, {kinds[other]} is {other[0]} of {other[1]}",
            hint="what is compared computes the same",
        )
    return Added(collective, tuple(sources), sized(ranks, topology, found), notes)


def of_collective(
    collective: str, file: str, topology: str | Path | Machine | None, **arguments: Unpack[Arguments]
) -> Case:
    """The plan in `file` as an algorithm of `collective`, under the knobs beside it. Raises ConfigError (AHBM-C178) for
    another's plan, and as `prepare`."""
    source = source_of(file)
    # A graph that states sizes only may perform several collectives.
    sizes = not isinstance(source, Script) and not read(source, Options().reading).buffers
    wanted = Options(collective=collective) if sizes else Options()
    options, arguments["overrides"], notes = _with_knobs(source, wanted, topology, arguments.get("overrides"))
    case = prepare(source, topology, options, **arguments)
    same_collective(case.request.collective, collective, file)
    return replace(case, notes=(*case.notes, *notes))


def same_collective(collective: str, wanted: str, file: str) -> None:
    """Raises ConfigError (AHBM-C178) where a plan is not of the collective that is wanted."""
    if collective != wanted:
        raise ConfigError(
            "AHBM-C178", f"{file} is a plan of {collective}, not of {wanted}", hint=f"ahbm run {collective} -a {file}"
        )


@spelled
@checked
def run(
    file: str | Path,
    topology: str | Path | Machine | None = None,
    options: Options = Options(),
    *,
    data: bool = True,
    check: bool | str = False,
    **arguments: Unpack[Arguments],
) -> Report:
    """Runs the plan in `file` once and reports it: `prepare`, then `measure.measure`. Raises what these raise."""
    return measure.measure(prepare(file, topology, options, **arguments), data=data, check=check)


@checked
def convert(
    source: AnyAlgorithm | Script,
    target: str | Path,
    *,
    size: int | str | None = None,
    nbytes: int | None = None,
    link_order: bool = False,
    slots: int | None = None,
    quirks: bool = False,
    limits: Sequence[tuple[str, int]] = (),
    collective: str | None = None,
    topology: str | Path | Machine | None = None,
    ccl: str | Path | None = None,
    overrides: Mapping[str, object] | None = None,
    dtype: str = "f16",
    root: int = 0,
    groups: Mapping[str, Sequence[int]] | None = None,
    step: int | None = None,
    host_gaps: bool = False,
    symmetric: bool = False,
    replicas: int | None = None,
) -> list[Path]:
    """Writes the algorithm in `source` as what the name of `target` says: .xml, .json, or the prefix of a trace, .et.

    source: the file of a plan, a script that lowers one, or an algorithm as `ahbm.run` takes it: a name in ccl.yaml, a
    module's name or path, a kernel function. The program of a script is written as its language's compiler writes it
    where `target` is of that language's own format. PyTorch's traces of a job, a rank's file or a folder, become a
    Chakra trace with every node, edge and attribute of the job.
    size: of the larger of operand and result, bytes or a text such as "64K", for which a kernel is captured, and by
    which a trace states its `comm_size`; about 1 MiB. nbytes: the same.
    link_order: orders the sends of every link of a trace by control dependencies. slots: messages that the queues of an
    execution plan hold; without it a kernel's own, else the runtime's. limits: as in
    `ahbm.config.reading.Reading`. quirks: the same, of a file or script.
    collective: the one to write, of an algorithm that computes several; None for `source` leaves the algorithm to
    ccl.yaml. topology, ccl, overrides, dtype, root: of an algorithm, as in `ahbm.run`.
    groups, step, host_gaps, symmetric: of PyTorch's traces, as in `Workload.read`. replicas: as in
    `Workload.replicated`.
    The knobs beside the file of a plan (`NAME.knobs.json`) are written beside `target` too.
    Returns the files that were written; after an error there are none.

    Raises FormatError, BudgetError, UnsupportedError (AHBM-U292 for what the format of `target` cannot express, U294
    for an operation of a kernel that no plan can express, U236 as `Workload.replicated`), ConfigError (AHBM-C146:
    arguments that do not go with `source`, or no single collective), and for an algorithm what `ahbm.run` raises
    before it runs.
    """
    if size is not None:
        if nbytes is not None:
            raise ConfigError("AHBM-C128", "size and nbytes are both given, and say the same", hint="give size")
        nbytes = whole("size", parse_size(size) if isinstance(size, str) else size, 1, 2**63 - 1)
    of_jobs = (groups, step, host_gaps or None, symmetric or None, replicas)
    ending = Path(target).suffix.lower()
    if link_order and ending != ".et":
        raise ConfigError("AHBM-C146", f"{target}: link_order is for what is written as .et")
    if isinstance(source, str | Path) and (isfile(source) or isdir(source)) and is_pytorch_trace(source):
        of_algorithms = (
            nbytes,
            slots,
            collective,
            topology,
            ccl,
            overrides or None,
            link_order or None,
            quirks or None,
        )
        if of_algorithms != (None,) * 8 or (dtype, root) != ("f16", 0):
            raise ConfigError("AHBM-C146", f"{source} is the trace of a job: it takes no options of algorithms")
        if Path(target).suffix.lower() != ".et":
            raise UnsupportedError("AHBM-U292", f"{target}: a job is written as a Chakra trace", hint="PREFIX.et")
        how = partial(Workload.read, source, limits=limits, step=step, host_gaps=host_gaps, scaled=replicas is not None)
        job = how(groups=groups or {}, symmetric=symmetric)
        for name, given in (("groups", bool(groups)), ("symmetric", symmetric)):
            others = {"groups": groups or {}, "symmetric": symmetric} | {name: {} if name == "groups" else False}
            if given and _reads_alike(job, partial(how, **others)):
                raise ConfigError("AHBM-C146", f"{source} says itself which ranks do what: {name} changes nothing")
        return (job if replicas is None else job.replicated(replicas)).write(target)
    if of_jobs != (None,) * 5:
        what = "no groups, step, host gaps, symmetry or replicas"
        raise ConfigError("AHBM-C146", f"{source} is no trace of PyTorch: it takes {what}")
    nbytes = None if nbytes is None else whole("nbytes", nbytes, 1, 2**63 - 1)
    slots = None if slots is None else whole("slots", slots, 1, 2**32 - 1)
    if not _is_source_of_plan(source):
        assert not isinstance(source, Script)
        if quirks:
            raise ConfigError("AHBM-C146", f"{source} is no file of a plan: it has no quirks")
        emulator = Emulator.load(topology, ccl, overrides)
        plan = _plan_of(emulator, source, collective, limits, size=nbytes, dtype=dtype, root=root)
        return plan.save(target, nbytes=nbytes, link_order=link_order, slots=slots)
    if (collective, topology, ccl, overrides or None, dtype, root) != (None, None, None, None, "f16", 0):
        what = "no collective, topology, ccl.yaml, overrides, dtype or root"
        if isinstance(source, str | Path) and not str(source).endswith(".py"):
            kind = "job" if trace_sort(source, limits=limits) == "job" else "plan"
            raise ConfigError("AHBM-C146", f"{source} is a {kind}: it takes {what}")
        raise ConfigError("AHBM-C146", f"{source} is a script: it takes {what}", hint="what is the script's follows --")
    slots = slots or SLOTS
    if nbytes is not None and ending != ".et":
        raise ConfigError("AHBM-C146", f"{target}: a plan is for all sizes; a size is for what is written as .et")
    # As a trace, a graph of sizes stays what it is.
    if isinstance(source, str | Path) and ending != ".et" and trace_sort(source, limits=limits) not in ("job", "none"):
        reading = Reading(quirks=quirks, limits=tuple(limits))
        if not reading.read(source).buffers:
            return runnable(source, reading).save(target, nbytes=nbytes, link_order=link_order, slots=slots or None)
    if not isinstance(source, Script):
        assert isinstance(source, str | Path)
        paths = convert_plan(
            source, target, nbytes=nbytes, link_order=link_order, slots=slots, quirks=quirks, limits=limits
        )
        return [*paths, *knobs.carry(source, target)]
    program = source.chosen(quirks=quirks)
    if str(target).endswith(OWN[program.language]):
        with writing(target):
            store({Path(target): program.text.encode()})
        return [Path(target)]
    return program.plan.save(target, nbytes=nbytes, link_order=link_order, slots=slots)


def _reads_alike(job: Workload, reading: Callable[[], Workload]) -> bool:
    """Whether traces that are read otherwise are the same job."""
    try:
        other = reading()
    except AhbmError:
        return False
    return (other.ranks, other.nodes) == (job.ranks, job.nodes) and [c.ranks for c in other.calls] == [
        c.ranks for c in job.calls
    ]


def _is_source_of_plan(source: object) -> bool:
    """Whether this is a file, or the script, of a plan, and no algorithm of ccl.yaml or of Python."""
    if isinstance(source, str | Path):
        return is_file(str(source)) or isdir(source) or is_prefix(source)
    return isinstance(source, Script)


def _plan_of(
    on: Emulator,
    algorithm: AnyAlgorithm,
    collective: str | None,
    limits: Sequence[tuple[str, int]],
    **arguments: Unpack[Arguments],
) -> Plan:
    """The plan of an algorithm, at the largest size up to `DEFAULT_BYTES` of equal blocks where none is given."""
    chosen = as_algorithm(algorithm)
    if collective is None:
        if chosen is None:
            raise ConfigError("AHBM-C146", "neither an algorithm nor a collective is given", hint="ahbm list")
        found = on.algorithm(chosen)
        if len(found.collectives) != 1:
            hint = f"ahbm convert {found.collectives[0]} -a {found.name}, or collective={found.collectives[0]!r}"
            raise ConfigError(
                "AHBM-C146", f"{found.name} computes {', '.join(found.collectives)}: say which", hint=hint
            )
        (collective,) = found.collectives
    if arguments.get("size") is None:
        ranks = on.settings(chosen).world_size or on.world_size
        unit = ranks * element(arguments.get("dtype", "f16")).storage.itemsize
        arguments["size"] = max(DEFAULT_BYTES // unit, 1) * unit
    arguments["emulator"] = on
    case = measure.prepare(collective, chosen, **arguments)
    if case.request.root and not case.request.kind.rooted:
        raise ConfigError("AHBM-C146", f"{collective} has no root")
    return on.plan(case.request, case.by, limits)


def free_name(file: str | Path | Script, ccl: str | Path | None, overrides: Mapping[str, object] | None) -> str:
    """`label`; with the ending of the file's name, `ring_xml`, where ccl.yaml has a kernel or schedule of that name."""
    name, path = label(file), file.path if isinstance(file, Script) else str(file)
    known = CclConfig.load(ccl, split_overrides(overrides)[1])
    if name not in known.algorithms or known.settings(name).kind == ("dsl" if path.endswith(".py") else "plan"):
        return name
    return f"{name}_{Path(path).suffix[1:] or 'plan'}"


def label(file: str | Path | Script) -> str:
    """Name of what is in a file: of `ring.xml`, `ring.et`, `ring.3.et`, `ring.3.json.gz` and `ring.py` it is `ring`."""
    return re.sub(r"((\.\d+)?\.(et|json)(\.gz|\.zst)?|\.xml|\.csv|\.py)$", "", Path(str(file)).name).replace(".", "_")
