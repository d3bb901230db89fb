"""`ahbm.run`: one collective on one machine, measured and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from os.path import isdir, isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast
from weakref import ref

import ahbm
from ahbm.base import codes
from ahbm.base.arguments import checked, instance, path, refused, text, texts, whole
from ahbm.base.arguments import overrides as overrides_of
from ahbm.base.collectives import COLLECTIVES, Collective, require_collective
from ahbm.base.elements import Element, element
from ahbm.base.load import is_prefix
from ahbm.base.placement import DPPolicy
from ahbm.base.request import Request
from ahbm.base.sizes import Resized, Unit, parse_size
from ahbm.base.words import IDLE
from ahbm.check.case import Case, explain_wrong, narrowed
from ahbm.check.checks import demand, examine, parse
from ahbm.check.reference import Reference, inputs, takes_turns
from ahbm.choice.configured import likely
from ahbm.config.ccl import CclConfig, split_overrides
from ahbm.config.protocols import held
from ahbm.config.settings import Settings
from ahbm.config.topology import assumed, overruled
from ahbm.core.compiled import Compiled
from ahbm.core.emulator import Emulator
from ahbm.core.spec import Spec, machine_name
from ahbm.errors import (
    BudgetError,
    ConfigError,
    DataError,
    DeadlockError,
    Finding,
    KernelError,
    LintError,
    UnsupportedError,
)
from ahbm.runs import bands
from ahbm.runs.blame import blamed, tracing
from ahbm.runs.keywords import Arguments, refuse_unknown, spelled
from ahbm.runs.report import Report, bandwidths
from ahbm.selectors.asking import Solo
from ahbm.selectors.loading import as_selector
from ahbm.source.function import AnyAlgorithm, as_algorithm
from ahbm.source.located import refuse_kernel

if TYPE_CHECKING:
    from ahbm._core import Machine


RANKS = -(2**31), 2**31 - 1
"""Numbers that may be meant as ranks; whether there is such a rank is asked later."""


@spelled
@checked
def run(
    collective: str | Path = "all_reduce",
    algorithm: AnyAlgorithm = None,
    topology: str | Path | Machine | None = None,
    *,
    data: bool = True,
    seed: int = 0,
    mode: str = "integers",
    check: bool | str | Iterable[str] = False,
    **arguments: Unpack[Arguments],
) -> Report:
    """Runs a collective among all ranks once and reports its simulated time.

    collective, algorithm, topology: as for `prepare`. An algorithm is a name in ccl.yaml, a module's name or path, a
    kernel function, or what `ahbm.algorithm` makes of one; a topology a packaged name, a path or a Machine.
    data: also move the data and compare with NumPy (`Report.wrong`). seed, mode: choose the numbers.
    check: True raises DataError for a wrong result; "all", or names of checks, also checks the program.

    The file of a job or of a plan in place of a collective runs as `ahbm.open(file, ...).run()`: a job gives a
    `JobReport`, a plan without a known result a `TimeReport`.

    Raises ConfigError, TopologyError, UnsupportedError, KernelError, LintError, DeadlockError, BudgetError, DataError.
    """
    if (named := _named(collective)) not in COLLECTIVES and is_there(named):
        terms = {"algorithm": algorithm, "topology": topology, **arguments}
        given: Any = {name: value for name, value in terms.items() if value is not None}
        opened: Any = ahbm.open(named, **given)
        # Only what is asked for: a job runs for its time, and takes no checks.
        return cast(Report, opened.run(data=data, seed=seed, **({"check": check} if check is not False else {})))
    case = prepare(named, algorithm, topology, **arguments)
    return measure(case, data=data, seed=seed, mode=mode, check=check)


@checked
def measure(
    case: Case,
    *,
    data: bool | None = True,
    seed: int = 0,
    mode: str = "integers",
    check: bool | str | Iterable[str] = False,
) -> Report:
    """Runs a case once and reports its simulated time.

    data: also move the data and compare with NumPy (`Report.wrong`); `mode` and `seed` choose it (`reference.inputs`).
    The check `result` then also compares numbers of the whole width of their type. None, with that check: only where it
    cannot decide without.
    check: True raises DataError (AHBM-V301) with a diff of contributions when the result is wrong. Names of
    `ahbm.check.checks.CHECKS` (a list, or one text with commas) or "all" also check the program: races, uninitialised
    reads, leftovers, deadlocks, results in every order, diverging bits, all of them across calls that follow each
    other; what fails is raised, what cannot be decided is in `Report.findings`. There it also says why a result is
    wrong where `check` does not ask for an error.

    Raises ConfigError, UnsupportedError (AHBM-U290 too, for a result that `data=None` leaves undecided), KernelError,
    LintError, DeadlockError, BudgetError, DataError.
    """
    compiled, wrong, checks, findings = verify(case, data=data, seed=seed, mode=mode, check=check)
    spec = replace(case.spec(), checks=tuple(sorted(checks)), data=wrong is not None, mode=mode, seed=seed)
    return _report(case, compiled, wrong, spec, findings)


def verify(
    case: Case, *, data: bool | None, seed: int, mode: str, check: bool | str | Iterable[str], quick: bool = False
) -> tuple[Compiled, int | None, frozenset[str], tuple[Finding, ...]]:
    """What ran, how many elements are wrong (None without data), the checks, and what they could not decide.

    `measure` without the report. quick: neither compare wide numbers nor look for what is wrong where. The other
    arguments and errors are those of `measure`. What is wrong names the kernel's own lines (`ahbm.runs.blame`).
    """

    def again(case: Case) -> tuple[Compiled, int | None, frozenset[str], tuple[Finding, ...]]:
        return _verified(case, data=data, seed=seed, mode=mode, check=check, quick=quick)

    if quick:
        return again(case)
    try:
        return again(case)
    except (DataError, DeadlockError, KernelError, LintError) as error:
        raise blamed(case, error, again) from error.__cause__


def _verified(
    case: Case, *, data: bool | None, seed: int, mode: str, check: bool | str | Iterable[str], quick: bool = False
) -> tuple[Compiled, int | None, frozenset[str], tuple[Finding, ...]]:
    if data is None:
        return _decided(case, seed=seed, mode=mode, check=check)
    request, wrong = case.request, None
    seed = whole("seed", seed, 0, 2**64 - 1)
    checks: frozenset[str] = frozenset()
    if not isinstance(check, bool):
        checks = parse(check if isinstance(check, str) else texts("check", check, "True, False, or names of checks"))
    if data:
        given = inputs(request, mode, seed)
        compiled, results = case.execute(given)
        reference = Reference(request, given, exact=mode != "random")
        wrong = sum(len(reference.wrong(party, results[party])) for party in range(request.parties))
        if wrong and quick and "result" in checks:
            raise DataError("AHBM-V301", f"wrong result: {wrong} elements")
        if wrong and (check is True or "result" in checks):
            raise explain_wrong(case, given, results, reference, tracing(case, mode, seed))
        # Where nobody takes turns, the integers are as wide.
        compared = mode == "wide" or (mode == "integers" and not takes_turns(request))
        wide = not quick and "result" in checks and not compared
        if wide and (error := narrowed(case, seed, partial(tracing, case))) is not None:
            raise error
    else:
        compiled = case.compiled()
    findings = demand(examine(case, compiled, checks, seed=seed), checks)
    if wrong:
        # The check names the line that wrote last; what it does not see, such as rounding, a diff of the data shows.
        seen = examine(case, compiled, frozenset({"result"}), seed=seed)
        reasons = tuple(finding for finding in seen if finding.code not in codes.UNDECIDED)
        findings = (*(reasons or explain_wrong(case, given, results, reference).findings), *findings)
    # A program that stops only when time passes is found by running it.
    compiled.timeline(record=False)
    return compiled, wrong, checks, findings


def _decided(
    case: Case, *, seed: int, mode: str, check: bool | str | Iterable[str]
) -> tuple[Compiled, int | None, frozenset[str], tuple[Finding, ...]]:
    """As `verify` without data; with data where the check of the result could not decide."""
    found = verify(case, data=False, seed=seed, mode=mode, check=check)
    unknown = [finding for finding in found[3] if finding.code in (codes.RESULT_UNDECIDED, codes.CHECK_BUDGET)]
    if not unknown:
        return found
    try:
        compiled, wrong, checks, findings = verify(case, data=True, seed=seed, mode=mode, check=check)
    except (BudgetError, UnsupportedError) as error:
        first = unknown[0]
        what = f"{first.message}; numbers were not compared: {error.code} {error.message}"
        raise UnsupportedError(codes.RESULT_UNDECIDED, what, sites=first.sites, hint=first.hint) from error
    # The numbers have decided.
    return compiled, wrong, checks, tuple(finding for finding in findings if finding not in unknown)


@spelled
@checked
def prepare(
    collective: str = "all_reduce",
    algorithm: AnyAlgorithm = None,
    topology: str | Path | Machine | None = None,
    **arguments: Unpack[Arguments],
) -> Case:
    """The case that `run` would run, to measure, explain or execute with data of one's own.

    algorithm: a name in ccl.yaml, a module's name or path, the file of a plan, a script that lowers one, a kernel
    function, a module that was imported, or what `ahbm.algorithm` makes of these; None takes what ccl.yaml chooses. A
    plan runs on as many SIPs as it has ranks where nobody names a machine.
    topology: a packaged name, a path, a SIP network's name or a Machine; None looks for one (`load_machine`).

    Raises ConfigError (AHBM-C125: a size that is absurd; C129: a keyword that there is
    not), TopologyError, UnsupportedError.
    """
    refuse_unknown(arguments)
    named = text("collective", collective)
    if named not in COLLECTIVES:
        refuse_kernel(named)
        require_collective(named, f"ahbm.open({named!r}) opens a file" if is_there(named) else None)
    chosen = as_algorithm(algorithm)
    emulator = instance("emulator", arguments.get("emulator"), Emulator, "an ahbm.Emulator")
    ccl, overrides = path("ccl", arguments.get("ccl")), overrides_of(arguments.get("overrides"))
    if emulator is None:
        if isinstance(chosen, str) and _is_file(chosen, ccl, overrides):
            from ahbm.runs.plans import of_collective

            return of_collective(collective, chosen, topology, **arguments)
        emulator = Emulator.load(topology, ccl, overrides)
    elif topology is not None or ccl is not None or overrides:
        raise ConfigError(
            "AHBM-C126",
            "an emulator already has its topology, ccl.yaml and overrides",
            hint="pass either the emulator or these",
        )
    kind, stored, placement = (
        COLLECTIVES[collective],
        element(text("dtype", arguments.get("dtype", "f16"))),
        instance("placement", arguments.get("placement"), DPPolicy, "an ahbm.DPPolicy"),
    )
    settings = emulator.settings(chosen or likely(emulator, collective, _size("size", arguments.get("size")) or 0))
    ranks = settings.world_size or emulator.world_size
    tiles = 1 if placement is None else placement.cubes(emulator.machine.cubes)
    pes = tiles if placement is not None else 1 if ranks > emulator.machine.sips else emulator.machine.cubes
    elements, resized = _elements(kind, stored, settings, ranks, pes, arguments)
    request = Request(
        collective,
        range(ranks),
        elements // (1 if kind.name == "barrier" else pes if placement is not None else kind.chunks(ranks)),
        stored.name,
        text("op", arguments.get("op", "sum")),
        root=whole("root", arguments.get("root", 0), *RANKS),
        src=whole("src", arguments.get("src", 0), *RANKS),
        dst=whole("dst", arguments.get("dst", 1), *RANKS),
        placement=placement,
        tiles=tiles,
    )
    idle = [] if kind.rooted or not request.root else [f"{collective} has no root: root {request.root} {IDLE}"]
    idle += [] if kind.reduces or request.op == "sum" else [f"{collective} reduces nothing: {request.op} {IDLE}"]
    notes = (*assumed(emulator.machine), *overruled(emulator.machine, ranks), *idle, *_file_meant(chosen, emulator))
    selector = arguments.get("selector")
    if selector is not None:
        if chosen is not None:
            raise refused("selector", "None where the algorithm is given", selector)
        given = as_selector(selector)
        choice = None if given is None else Solo(emulator, given).choice(request)
        if choice is not None:
            if not isinstance(choice.algorithm, str):
                raise ConfigError(
                    "AHBM-C180",
                    f"the selector chose {choice.name}, which ccl.yaml does not name: a report could not run it again",
                    hint="name it in ccl.yaml, or ahbm.open(plan).run()",
                )
            by = emulator.with_knobs(request, choice.algorithm, choice.alone)
            return Case(emulator, request, by, choice, notes, resized)
    return Case(emulator, request, chosen, notes=notes, resized=resized)


def _file_meant(chosen: object, emulator: Emulator) -> list[str]:
    """A note where a name that ccl.yaml does not have is a module of the folder, beside other files of that name."""
    if not isinstance(chosen, str) or not chosen.isidentifier() or chosen in emulator.ccl.algorithms:
        return []
    others = sorted(path.name for path in Path().glob(f"{chosen}.*") if path.suffix in (".xml", ".json", ".et", ".csv"))
    if not others or not isfile(f"{chosen}.py"):
        return []
    beside = f"{others[0]}{' and others' * (len(others) > 1)}"
    return [f"ccl.yaml names no {chosen}: {chosen}.py runs, not {beside} beside it"]


def _named(collective: object) -> str:
    return str(collective) if isinstance(collective, Path) else text("collective", collective)


def is_there(target: str) -> bool:
    """Whether this is a file, a folder, or the prefix of a trace."""
    return isfile(target) or isdir(target) or is_prefix(target)


def _is_file(algorithm: str, ccl: str | Path | None, overrides: Mapping[str, object] | None) -> bool:
    """Whether this is the file of a plan, of which ccl.yaml knows nothing."""
    from ahbm.runs.plans import is_file

    return is_file(algorithm) and algorithm not in CclConfig.load(ccl, split_overrides(overrides)[1]).algorithms


def _size(name: str, value: object) -> int | None:
    """Bytes: a number, or a text such as "64K"."""
    if value is None or not isinstance(value, str):
        return None if value is None else whole(name, value, -(2**63), 2**64)
    return parse_size(value)


def _elements(
    kind: Collective, stored: Element, settings: Settings, ranks: int, pes: int, arguments: Arguments
) -> tuple[int, Resized | None]:
    """Elements of one rank's array, which is spread over `pes` PEs; and the size that was asked for, if it is not
    this."""
    per_rank, per_pe = (_size(name, arguments.get(name)) for name in ("size", "bytes_per_pe"))
    if per_rank is not None and per_pe is not None:
        raise ConfigError("AHBM-C128", "size and bytes_per_pe are both given", hint="give one of them")
    if kind.name == "barrier":
        return 1, None
    item = stored.storage.itemsize
    given = per_rank if per_pe is None else per_pe
    if given is not None and given < 0:
        raise ConfigError("AHBM-C125", f"{given} bytes are no size", hint="give 0 or more")
    if given is not None and given * pes >= 1 << 62:
        raise ConfigError("AHBM-C125", f"{given} bytes are more than any machine has")
    unit = Unit.of_arrays(kind.name, ranks, stored.name)
    if arguments.get("placement") is not None:
        unit = Unit(item * pes, f"{kind.name} on {pes} tiles of {stored.name}")
    asked = settings.n_elem * pes * item if given is None else given if per_pe is None else given * pes
    ((nbytes, resized),) = unit.fit([asked])
    return nbytes // item, None if given is None else resized


def _report(case: Case, compiled: Compiled, wrong: int | None, spec: Spec, findings: tuple[Finding, ...]) -> Report:
    request, kind, machine = case.request, case.request.kind, case.emulator.machine
    latency_ps = compiled.latency_ps
    algbw, busbw = bandwidths(request.collective, request.parties, request.nbytes, latency_ps)
    of = machine, request.collective, compiled.algorithm, request.parties, request.nbytes, compiled.knobs
    calibrated = bands.note_of(*of)
    return Report(
        collective=request.collective,
        algorithm=compiled.algorithm,
        topology=machine.topology,
        ranks=request.parties,
        bytes=request.nbytes,
        count=request.count,
        dtype=request.dtype,
        op=request.op if kind.reduces else "none",
        root=request.root if kind.rooted else -1,
        latency_ns=latency_ps / 1000,
        messages=compiled.messages,
        algbw_gbs=algbw,
        busbw_gbs=busbw,
        bound=case.emulator.bound(request, compiled),
        wrong=wrong,
        timeline_hash=f"{compiled.timeline_hash:016x}",
        machine_hash=f"{machine.hash:016x}",
        program_hash_of=_program_hash(compiled, spec),
        version=ahbm.__version__,
        ops=compiled.ops,
        memory_bytes=compiled.memory_bytes,
        checks=spec.checks,
        findings=findings,
        notes=(
            *case.chosen.notes,
            *compiled.notes,
            *case.notes,
            *held(machine, compiled.protocol or machine.protocol or ""),
            *filter(None, [calibrated]),
        ),
        resized=case.resized,
        band=bands.band(*of),
        machine=machine_name(machine),
        spec=spec,
    )


def _program_hash(compiled: Compiled, spec: Spec) -> Callable[[], str]:
    """Finds the hash of what ran; a report does not keep its program alive for that."""
    held = ref(compiled)

    def find() -> str:
        program = (held() or Case.of(spec).compiled()).program
        return f"{program.hash:016x}" if program is not None else ""

    return find
