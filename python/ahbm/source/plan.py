"""Plans of other projects as algorithms (`plan:` in ccl.yaml), and the programs they are lowered to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ahbm._core import Machine, Plan, Program, plan_files, plan_limits
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.layout import Layout
from ahbm.base.load import load_bytes
from ahbm.base.request import Request
from ahbm.config.checks import AUTO, Check, integer, mapping, one_of, switch, text
from ahbm.config.kinds import Kind
from ahbm.config.reading import PLAIN, SUFFIXES, Reading
from ahbm.dsl.script import Script
from ahbm.errors import ConfigError, Site, UnsupportedError
from ahbm.source.algorithm import Algorithm, Lowered, Piece, rows
from ahbm.source.files import no_file
from ahbm.source.sized import Assigned, Unassigned, assigned

if TYPE_CHECKING:
    from ahbm.config.settings import Queues, Settings

Region = tuple[int, int, int]
"""Buffer, first byte, bytes."""

WHOLE = 2**63 - 1
"""A size of the largest message that cuts none."""
UNBOUNDED = 2**32 - 1
"""Messages a queue holds that has no bound."""
SLOTS = 0
"""Messages a plan's queue holds where its entry does not say: what the runtime has for the protocol (`Plan.depth`)."""


KNOBS = {"protocol": "protocol", "channels": "instances", "chunk_bytes": "slice_bytes"}
"""The options that a library's knobs are."""
PROTOCOLS = {"simple": "Simple", "ll": "LL", "ll128": "LL128"}
"""By the names of NCCL, those of plans."""


@dataclass(frozen=True)
class PlanOptions:
    """The options of reading and lowering a plan; in ccl.yaml, keys beside `plan:`."""

    protocol: str | None = None
    """"Simple", "LL" or "LL128" instead of the plan's own."""
    instances: int = 1
    """Parallel copies of the plan, each on its share of every chunk."""
    slice_bytes: int | None = None
    """Size of the largest message instead of the protocol's."""
    reading: Reading = PLAIN
    collective: str | None = None
    """The collective that a graph performs which does not say so itself."""
    stated_bytes: int | None = None
    """The size of one rank's array for which a graph states the sizes of its messages."""

    def with_knobs(self, knobs: Mapping[str, str | int]) -> tuple[PlanOptions, Collection[str]]:
        """The options under a library's knobs, and the names of those that they have."""
        own = {name: value for name, value in knobs.items() if name in KNOBS}
        if "protocol" in own and (spelt := PROTOCOLS.get(str(own.pop("protocol")).lower())) is not None:
            own["protocol"] = spelt
        changed: dict[str, Any] = {KNOBS[name]: value for name, value in own.items()}
        return replace(self, **changed), own.keys()

    @staticmethod
    def of(entry: Mapping[str, Any]) -> PlanOptions:
        """Those of an entry of ccl.yaml."""
        return PlanOptions(
            entry.get("protocol"),
            entry.get("instances", 1),
            entry.get("slice_bytes"),
            Reading.of(entry),
            entry.get("collective"),
            entry.get("stated_bytes"),
        )


@dataclass(frozen=True, eq=False)
class PlanAlgorithm:
    """A plan that was read, as an algorithm of the emulator."""

    name: str
    path: Path
    digest: str
    """Hash of the file's content."""
    read: Plan
    how: PlanOptions

    @staticmethod
    def of(name: str, plan: Plan, text: str, path: str | Path) -> PlanAlgorithm:
        """The plan that `text`, the content of the file `path`, holds. Raises as `runnable`."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        return PlanAlgorithm(name, Path(path), digest, _runs(plan, path), PlanOptions())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlanAlgorithm) and (self.name, self.identity) == (other.name, other.identity)

    def __hash__(self) -> int:
        return hash((self.name, self.digest))

    @property
    def collectives(self) -> tuple[str, ...]:
        """The one collective that it computes."""
        if self.known:
            return (self.read.collective,)
        named = self.how.collective or (self.moves.collective if self.moves is not None else None)
        return (named or self.read.collective,)

    @property
    def moves(self) -> Assigned | None:
        """The chunks of the messages of a graph that states sizes only; None for another plan, and where no chunks make
        it a collective."""
        found = None
        if not self.read.buffers:
            found = assigned_of(self.read, self.path, self.how.collective, self.how.reading)
        return found if isinstance(found, Assigned) else None

    @property
    def known(self) -> bool:
        """Whether it is known what it computes, from which bytes; else only how long it takes."""
        return self.read.buffers and has_known_result(self.read)

    @property
    def source(self) -> str:
        """The origin of the algorithm, for people."""
        return str(self.path)

    @property
    def identity(self) -> tuple[str, str, PlanOptions]:
        """Kind, content hash, and how it is read and lowered."""
        return ("plan", self.digest, self.how)

    def supports(self, network: str) -> bool:
        """True: a plan names its peers itself."""
        return True

    def check(self, request: Request) -> None:
        """Raises ConfigError AHBM-C115 for another collective than the plan's, C117 for another number of ranks,
        UnsupportedError AHBM-U112 for another root than the plan's, AHBM-U113 for one that does not say what it
        performs."""
        stated = self.how.collective or (not self.read.buffers and self.collectives[0] in COLLECTIVES)
        if not self.known and not stated:
            raise UnsupportedError(
                "AHBM-U113",
                f"{self.name} does not say which collective it performs: it is {self.read.collective}",
                sites=(self._site(),),
                hint="for calls of jobs, which run for their time, `collective: all_reduce` beside `plan:` says it",
            )
        if request.collective not in self.collectives:
            raise ConfigError(
                "AHBM-C115",
                f"{self.name} implements {self.collectives[0]}, not {request.collective}",
                sites=(self._site(),),
                hint="choose another algorithm",
            )
        if request.world_size != self.read.ranks:
            raise ConfigError(
                "AHBM-C117",
                f"{self.name} is a plan for {self.read.ranks} ranks, not {request.world_size}",
                sites=(self._site(),),
                hint=f"set system.sips.count={self.read.ranks}, or world_size: {self.read.ranks} for this algorithm",
            )
        root = (self.read if self.moves is None else self.moves.plan).root or 0
        if COLLECTIVES[request.collective].rooted and request.root != root:
            raise UnsupportedError(
                "AHBM-U112",
                f"{self.name} is rooted at rank {root}, not {request.root}",
                sites=(self._site(),),
            )
        if request.placement is not None:
            raise UnsupportedError(
                "AHBM-U111", f"the plan {self.name} does not work on device tensors", hint="pass host arrays"
            )

    def lower(self, machine: Machine, request: Request, layout: Layout, settings: Settings) -> Lowered:
        """Rank i is on the SIP of its place.

        Raises FormatError (AHBM-F127) when the size does not split into the plan's chunks, UnsupportedError
        (AHBM-U232 for messages that cannot be scaled to the request's size), BudgetError, LintError.
        """
        sips = [sip for sip, _, _ in layout.places]
        if self.known:
            how = self.how
            if self.read.format in SCHEDULES and how.slice_bytes is None:
                # A schedule sends a chunk over a link at once: slices would leave one hop of latency more in its time.
                how = replace(how, slice_bytes=WHOLE)
            lowered = lower(self.read, machine, request, _queues(self, settings), how, sips)
            return lowered._replace(note=off_range(self.read, self.name, request.nbytes))
        # A graph knows no bound on queues.
        bounded = self.read.buffers or settings.own_slots
        queues = settings.queues if bounded else settings.queues._replace(n_slots=UNBOUNDED)
        dtype = request.dtype if self.read.buffers else "u8"
        moves, how = self.moves, self.how
        if moves is not None and how.stated_bytes is None:
            how = replace(how, stated_bytes=moves.assignment.bytes)
        program, _ = as_program(self.read, machine, queues, how, request.nbytes, dtype, request.op, sips)
        if moves is None or moves.collective != request.collective:
            return Lowered(program, [], [], timed=True)
        # The graph has the time: what moves its data has room wherever there is some.
        roomiest = settings.queues._replace(buffer_kind=AUTO).tiers(machine.tiers)[-1]
        unbounded = settings.queues._replace(n_slots=UNBOUNDED, buffer_kind=roomiest)

        def moved() -> Lowered:
            return lower(moves.plan, machine, request, unbounded, PlanOptions(), sips)

        return Lowered(program, [], [], note=moves.note, moved=moved)

    @property
    def anywhere(self) -> bool:
        """True: a plan numbers its ranks itself."""
        return True

    @property
    def by_shape(self) -> bool:
        """True: a plan knows no times."""
        return True

    @property
    def takes_shares(self) -> bool:
        """False: its chunks are equal."""
        return False

    @property
    def is_plan(self) -> bool:
        """True."""
        return True

    def with_knobs(self, knobs: Mapping[str, str | int]) -> tuple[PlanAlgorithm, Collection[str]]:
        """The plan under a library's knobs, and the names of those that it leaves open."""
        how, names = self.how.with_knobs(knobs) if is_free(self.read) else (self.how, ())
        return replace(self, how=how), names

    def plan(
        self, machine: Machine, request: Request, settings: Settings, limits: Sequence[tuple[str, int]] = ()
    ) -> Plan:
        """The plan that was read; of a graph of sizes, with its chunks."""
        return self.read if self.moves is None else self.moves.plan

    def _site(self) -> Site:
        return Site(self.name, str(self.path))


def as_program(
    plan: Plan,
    machine: Machine,
    queues: Queues,
    how: PlanOptions,
    nbytes: int,
    dtype: str,
    op: str,
    sips: Sequence[int] = (),
) -> tuple[Program, list[list[Region]]]:
    """`plan` as a program for `nbytes` bytes, and per rank where its operand, result and scratch are.

    Rank i is on SIP `sips[i]`; without any, on SIP i.
    """
    program, ranks, _ = plan.lower(
        machine,
        nbytes=nbytes,
        dtype=dtype,
        op=op,
        slots=queues.n_slots,
        protocol=how.protocol,
        instances=how.instances,
        tier=queues.buffer_kind,
        credit_bytes=queues.ipcq_credit_size_bytes,
        slice_bytes=how.slice_bytes,
        sips=list(sips),
        stated=how.stated_bytes or 0,
    )
    return program, ranks


def lower(
    plan: Plan, machine: Machine, request: Request, queues: Queues, how: PlanOptions, sips: Sequence[int]
) -> Lowered:
    """`plan` as a program for `request`; `sips` and errors as of `as_program` and `PlanAlgorithm.lower`."""
    program, ranks = as_program(plan, machine, queues, how, request.nbytes, request.dtype, request.op, sips)
    item = request.element.storage.itemsize
    operands: list[list[Piece]] = []
    results: list[list[Piece]] = []
    for rank, ((source, at, _), (target, to, _), _) in enumerate(ranks):
        part, held = request.part(rank), request.held(rank)
        operands.append([(source, start * item, at, (stop - start) * item) for start, stop in held])
        size = (part.stop - part.start) * item
        results.append([(target, part.start * item, to, size)] if size else [])
    return Lowered(program, rows(operands), rows(results))


def options_of(settings: Settings) -> tuple[str, PlanOptions]:
    """The path of a plan's entry, and how it is read and lowered."""
    assert isinstance(settings.options, tuple)
    path, how = settings.options
    assert isinstance(path, str) and isinstance(how, PlanOptions)
    return path, how


def load(settings: Settings) -> PlanAlgorithm:
    """The plan of `settings`.

    Raises ConfigError (AHBM-C110 when there is no such file, C103 where the entry says what the plan says itself),
    FormatError, UnsupportedError, BudgetError.
    """
    name, how = options_of(settings)
    path = settings.folder / name
    files = plan_files(path)
    if not isfile(path) and files == [path]:
        raise no_file(settings.algorithm, path)
    try:
        content = b"".join(load_bytes(file) for file in files)
    except OSError as error:
        raise ConfigError("AHBM-C110", f"cannot read algorithm {settings.algorithm}: {error}") from error
    path = path.resolve()
    digest = hashlib.sha256(content).hexdigest()
    found = PlanAlgorithm(settings.algorithm, path, digest, read(path, how.reading), how)
    stated = found.known or found.read.collective not in ("custom", how.collective)
    if (how.collective and stated) or (how.stated_bytes and found.known):
        what = "collective and stated_bytes are for graphs that do not say what they perform"
        own = f"this one performs {found.read.collective}"
        raise ConfigError("AHBM-C103", f"algorithms.{found.name}: {what}, {own}", sites=(found._site(),))
    return found


SCHEDULES = ("tacos_csv", "teccl_json", "sccl_json")
"""Formats of synthesizers, whose schedules know links and no queues."""


def _queues(algorithm: PlanAlgorithm, settings: Settings) -> Queues:
    """Those of a plan: of a schedule, without a bound of its own, they hold what is sent."""
    unbounded = algorithm.read.format in SCHEDULES and not settings.own_slots
    return settings.queues._replace(n_slots=UNBOUNDED) if unbounded else settings.queues


def depth(algorithm: Algorithm, settings: Settings) -> int | None:
    """Messages that a queue of `algorithm` holds; None for a plan without queues."""
    slots = (_queues(algorithm, settings) if isinstance(algorithm, PlanAlgorithm) else settings.queues).n_slots
    return algorithm.read.depth(slots, algorithm.how.protocol) if isinstance(algorithm, PlanAlgorithm) else slots


def off_range(plan: Plan, name: str, nbytes: int) -> str:
    """A note that a runtime would not run the plan `name` at this size; empty where it would."""
    least, most = plan.sizes
    if least <= nbytes and (most is None or nbytes <= most):
        return ""
    sizes = f"{least} B and more" if most is None else f"{least} to {most} B"
    return f"{name} is for {sizes}: at other sizes a runtime runs another algorithm"


def is_free(plan: Plan) -> bool:
    """Whether it leaves protocol, channels and sizes of messages open: plans of MSCCL++ state them, and traces without
    buffers have none of them."""
    return plan.buffers and plan.format != "mscclpp_json"


def has_known_result(plan: Plan) -> bool:
    """Whether it computes what `ahbm.base.collectives` describes; in a send_recv plan every rank sends, not one."""
    kind = COLLECTIVES.get(plan.collective)
    return kind is not None and not kind.paired


def read(source: str | Path | Script, reading: Reading) -> Plan:
    """The plan in a file, or the one that a script lowers. Raises as `Reading.read` and `Script.lower`."""
    if isinstance(source, Script):
        return source.chosen(quirks=reading.quirks).plan
    return reading.read(source)


def assigned_of(
    plan: Plan, path: str | Path, collective: str | None = None, reading: Reading = PLAIN
) -> Assigned | Unassigned | None:
    """The chunks of the messages of a graph that was read from `path` and states sizes only, or why none are known;
    None for one that states no sizes."""
    if plan.buffers or not plan.format.startswith("chakra"):
        return None
    return assigned(path, collective if plan.collective == "custom" else plan.collective, reading)


def runnable(file: str | Path | Script, reading: Reading, collective: str | None = None) -> Plan:
    """The plan in `file`, of a graph of sizes the one that moves its data; raises UnsupportedError for one whose result
    cannot be computed. collective: what a graph of sizes performs; without one it is found out."""
    plan = read(file, reading)
    found = assigned_of(plan, file, collective, reading) if isinstance(file, str | Path) else None
    return runs(plan, file, found)


def runs(plan: Plan, file: str | Path | Script, found: Assigned | Unassigned | None) -> Plan:
    """The plan that moves the data of `plan`, which was read from `file`: with the chunks of a graph of sizes, if they
    were `found`. Raises as `runnable`."""
    if isinstance(found, Assigned):
        return found.plan
    if found is not None:
        raise UnsupportedError(
            "AHBM-U233",
            f"the trace {file} names no buffers, and there is no data to run it on: {found.why}",
            hint="ahbm run FILE.et runs it for its time, ahbm check follows its messages",
        )
    return _runs(plan, file)


def made_for(plan: Plan, file: str | Path | Script) -> tuple[int | None, int | None]:
    """The size of one rank's array, in bytes, for which a synthesizer made the schedule in `file`, and the picoseconds
    that the schedule takes by its own count; None for what the file does not state.

    TACOS states the bytes of a chunk; TE-CCL the time in seconds and the bandwidth in 10^9 B/s, which is the larger of
    operand and result over the time.
    """
    if isinstance(file, Script) or plan.format not in ("tacos_csv", "teccl_json"):
        return None, None
    text = load_bytes(file).decode(errors="replace")
    if plan.format == "tacos_csv":
        rows = (row.split(",") for row in text.splitlines())
        size = next((cells[1].strip() for cells in rows if cells[0].strip() == "Chunk Size" and len(cells) > 1), "")
        return (int(size) * plan.unit(1) if size.isdecimal() and len(size) < 16 else None), None
    stated = json.loads(text)
    seconds, rate = (stated.get(key) for key in ("4-Collective_Finish_Time", "5-Algo_Bandwidth"))
    known = [isinstance(fact, int | float) and 0 < fact < 1e12 for fact in (seconds, rate)]
    time = round(seconds * 1e12) if known[0] else None
    return (round(seconds * rate * 1e9) if all(known) else None), time


def stated_bytes(file: str | Path | Script, reading: Reading, collective: str | None = None) -> int | None:
    """The size of one rank's array for which a graph states the sizes of its messages; None for another plan."""
    found = None if isinstance(file, Script) else assigned_of(read(file, reading), file, collective, reading)
    return found.assignment.bytes if isinstance(found, Assigned) else None


def _runs(plan: Plan, file: str | Path | Script) -> Plan:
    if not plan.buffers:
        raise UnsupportedError(
            "AHBM-U233",
            f"the trace {file} names no buffers, so there is no data to run it on",
            hint="ahbm run FILE.et runs it for its time, ahbm check follows its messages",
        )
    if not has_known_result(plan):
        raise UnsupportedError(
            "AHBM-U113",
            f"{file}: what a {plan.collective} plan should compute is not known",
            hint="ahbm run FILE runs it for its time, ahbm check follows its chunks",
        )
    return plan


LOWERING: dict[str, Check] = {"protocol": text, "instances": integer(1), "slice_bytes": integer(1)}
"""Keys that say how a plan is lowered."""
_LIMITS = mapping(
    {name: integer(0, 2**64 - 1) for name, _ in plan_limits()},
    f"numbers for some of {', '.join(name for name, _ in plan_limits())}",
)

KIND = Kind(
    check=text,
    example="plan: with the path of a plan",
    options=lambda entry: (str(entry["plan"]), PlanOptions.of(entry)),
    load=load,
    listed=lambda settings: ((found := load(settings)).collectives, found.source),
    keys={
        **LOWERING,
        "quirks": switch,
        "lenient": switch,
        "limits": _LIMITS,
        "collective": one_of(*COLLECTIVES),
        "stated_bytes": integer(1),
    },
    defaults={"n_slots": SLOTS},
    file=lambda value, folder: folder / value,
    claims=lambda name: name.removesuffix(".gz").removesuffix(".zst").endswith((*SUFFIXES, ".sqlite")),
)
