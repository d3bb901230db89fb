"""``ahbm check``: is an algorithm right, read from a file or captured from a kernel, and if not, why."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from ahbm.base import html
from ahbm.base.arguments import overrides as overrides_of
from ahbm.base.sizes import one_size
from ahbm.base.verdicts import EXIT_CODES
from ahbm.config.reading import PLAIN, Reading
from ahbm.config.topology import with_ranks
from ahbm.dsl.script import Script, choose
from ahbm.errors import (
    AhbmError,
    BudgetError,
    Finding,
    FormatError,
    ProgramError,
    Site,
    UnsupportedError,
    described,
)
from ahbm.runs.judged import CLASSES, judged, verdict_of
from ahbm.source.function import AnyAlgorithm, as_algorithm
from ahbm.source.plan import SLOTS, assigned_of, depth
from ahbm.source.sized import Unassigned

if TYPE_CHECKING:
    from ahbm._core import Machine, Plan
    from ahbm.check.case import Case
    from ahbm.runs.family import Tried
    from ahbm.runs.keywords import Arguments

BYTES = 4096
"""Of one rank's array, where a kernel is checked first."""


@dataclass(frozen=True)
class CheckOptions:
    """The options of checking files."""

    slots: int | None = SLOTS
    """Messages a queue holds; None for no bound, 0 for what the runtime has for the protocol."""
    orders: int = 4
    """Orders of the thread blocks that are tried."""
    seed: int = 0
    """Chooses the random ones among them."""
    calls: int = 2
    """Times that a plan is issued in a row."""
    reading: Reading = PLAIN
    """The options of reading the file."""


@dataclass(frozen=True)
class Checked:
    """The answer for one file or kernel. A file that could not be read has no format, collective, ranks or
    ops, a kernel that makes no program no ops."""

    file: str
    """Path, or name of the algorithm."""
    format: str | None
    collective: str | None
    ranks: int | None
    ops: int | None
    slots: int | str | None
    """Depth of queues, ``"inf"`` unbounded; None where the format has no queues."""
    verdict: str
    """A key of `ahbm.base.verdicts.EXIT_CODES`."""
    min_slots: int | None
    """Least depth at which the program completes; None without queues or when none does."""
    findings: tuple[Finding, ...]
    proof: tuple[int, int] | None = None
    """Elements compared and picoseconds of the run with numbers that confirmed ``correct``; None without one."""
    notes: tuple[str, ...] = ()
    """What the reader should know of the number of ranks."""
    terms: str = ""
    """Of a kernel: the size, type, operator, root, machine and seed that it was checked with, and for what."""
    tried: Tried | None = None
    """Of a kernel that is right there: where else it was tried, and for what the verdict holds."""

    @property
    def exit_code(self) -> int:
        """Exit code of the verdict."""
        return EXIT_CODES[self.verdict]

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON-serialisable data."""
        findings = [
            {
                "code": finding.code,
                "message": finding.message,
                "origins": [site.origin for site in finding.sites if site.origin],
                "hint": finding.hint,
            }
            for finding in self.findings
        ]
        return {
            "file": self.file,
            "format": self.format,
            "collective": self.collective,
            "ranks": self.ranks,
            "ops": self.ops,
            "slots": self.slots,
            "verdict": self.verdict,
            "min_slots": self.min_slots,
            "findings": findings,
            "proof": self.proof and {"elements": self.proof[0], "time_ps": self.proof[1]},
            **({} if not self.notes else {"notes": list(self.notes)}),
            **({} if not self.terms else {"terms": self.terms}),
            **({} if self.tried is None else {"tried": self.tried.to_json()}),
        }

    def _repr_html_(self) -> str:
        title, *_ = str(self).splitlines()
        rows = [[finding.code, described([finding])] for finding in self.findings]
        return html.table(title, ("code", "finding") if rows else (), rows)

    def __str__(self) -> str:
        facts = []
        if self.format is not None:
            facts = [self.format, str(self.collective), f"{self.ranks} ranks"]
        if self.ops is not None:
            facts.append(f"{self.ops} ops")
        if self.slots is not None:
            facts.append(f"{self.slots} slots")
        if self.min_slots is not None:
            facts.append(f"needs {self.min_slots}")
        if self.proof is not None:
            facts.append(f"{self.proof[0]} elements proven")
        facts += [self.terms] if self.terms else []
        lines = [f"{self.file}: {self.verdict}" + (f" ({', '.join(facts)})" if facts else "")]
        lines += [
            f"  {line}"
            for line in (self.tried.lines() if self.tried is not None and len(self.tried.outcomes) > 1 else ())
        ]
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  {line}" for line in described(self.findings).splitlines()]
        return "\n".join(lines)


def check_file(path: str | Path, options: CheckOptions = CheckOptions()) -> Checked:
    """Reads and checks one file; what is wrong with it is in the answer. Raises ConfigError for unknown limits."""
    try:
        plan = options.reading.read(path)
    except (BudgetError, UnsupportedError) as error:
        return _unread(path, "unsupported", error)
    except FormatError as error:
        return _unread(path, "malformed", error)
    answer = _checked(str(path), plan, options)
    return _with_chunks(answer, plan, path, options) if answer.verdict == "no_expectation" else answer


def _with_chunks(answer: Checked, plan: Plan, path: str | Path, options: CheckOptions) -> Checked:
    """The answer for a graph that states sizes only: that of the plan with the chunks of its messages, where it has
    any. One whose name says what it performs is wrong where it cannot."""
    from ahbm.runs import plans, timed

    found = assigned_of(plan, path, reading=options.reading)
    if found is None or options.reading.lenient:
        return answer
    try:
        # The sizes are those of a run: what no run can send is no message.
        timed.prepare(plan, None, plans.Options(reading=options.reading, slots=None), None, "u8", "sum", None, None)
    except FormatError as error:
        return replace(answer, verdict="malformed", findings=(*error.findings, *answer.findings))
    except AhbmError:
        pass
    if isinstance(found, Unassigned):
        if not (found.stated and found.proven):
            return replace(answer, notes=(*answer.notes, found.why))
        finding = Finding("AHBM-V401", found.why, (Site("graph", str(path)),))
        return replace(answer, verdict="wrong", findings=(finding, *answer.findings))
    verdict, _, findings, proof = found.plan.check(
        slots=None, orders=options.orders, seed=options.seed, calls=options.calls
    )
    given = tuple(map(Finding.from_json, findings))
    return replace(
        answer,
        collective=found.collective,
        verdict=verdict,
        findings=(*given, *answer.findings),
        proof=proof,
        notes=(*answer.notes, found.note),
    )


def check_script(script: Script, options: CheckOptions = CheckOptions()) -> list[Checked]:
    """Runs a script and checks every program that it lowers, or the one that is meant.

    Raises ConfigError (AHBM-C176) for a program that there is not.
    """
    try:
        programs = script.lower(quirks=options.reading.quirks)
        complaints = script.outcome(quirks=options.reading.quirks).complaints
    except (BudgetError, UnsupportedError) as error:
        return [_unread(script.path, "unsupported", error)]
    except (FormatError, ProgramError) as error:
        return [_unread(script.path, "malformed", error)]
    chosen = programs if script.program is None else [choose(programs, script)]
    answers = []
    for one in chosen:
        name = f"{script.path}: {one.name}" if len(programs) > 1 else script.path
        own = [finding for program, finding in complaints if program == one.name]
        answer = _checked(name, one.plan, options, [*own, *one.notes])
        # Where nothing is known of the result, the program's own word counts.
        answers.append(replace(answer, verdict="wrong") if own and answer.verdict == "no_expectation" else answer)
    return answers


def _checked(name: str, plan: Plan, options: CheckOptions, notes: Sequence[Finding] = ()) -> Checked:
    verdict, min_slots, findings, proof = plan.check(
        slots=options.slots, orders=options.orders, seed=options.seed, calls=options.calls
    )
    slots = "inf" if options.slots is None and plan.queues else plan.depth(options.slots)
    return Checked(
        name,
        plan.format,
        plan.collective,
        plan.ranks,
        plan.ops,
        slots,
        verdict,
        min_slots,
        (*map(Finding.from_json, [*findings, *plan.warnings]), *notes),
        proof,
    )


def check_files(paths: Iterable[str | Path], options: CheckOptions = CheckOptions()) -> Iterator[Checked]:
    """Checks files side by side; yields the answers in the order of ``paths``, each as soon as it is its turn."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(lambda path: check_file(path, options), paths)


def check_kernel(
    algorithm: AnyAlgorithm,
    collective: str | None = None,
    topology: str | Path | Machine | None = None,
    *,
    checks: str = "all",
    seed: int = 0,
    data: bool = True,
    ranks: Sequence[int] = (),
    sizes: Sequence[int] = (),
    **arguments: Unpack[Arguments],
) -> Checked:
    """Captures an algorithm, runs it, and checks it; what is wrong with it is in the answer.

    An algorithm is first checked as asked for, by default with 4 KiB, and then at other numbers of ranks, counts,
    networks and roots, which its own conditions choose (`ahbm.runs.family`). `Checked.tried` says for what the verdict
    holds. ranks, sizes (bytes of one rank's array): exactly these, the first ones first. A size, a number of SIPs or a
    root that is given otherwise does not vary either.

    The file of a plan or a script that lowers one is checked as `check_file` and `check_script` do.
    ``collective``: the one that the algorithm implements, by default. Raises ConfigError and TopologyError for what is
    wrong with the question.
    """
    from ahbm.core.emulator import Emulator
    from ahbm.runs.family import Family
    from ahbm.runs.measure import prepare
    from ahbm.runs.plans import is_file, source_of

    arguments = cast("Arguments", one_size(arguments))
    chosen = as_algorithm(algorithm)
    if isinstance(chosen, str) and is_file(chosen):
        source = source_of(chosen)
        return check_script(source)[0] if isinstance(source, Script) else check_file(source)
    ccl, overrides = arguments.pop("ccl", None), overrides_of(arguments.pop("overrides", None)) or {}
    name = None if topology is None else str(topology)
    emulator = Emulator.load(topology, ccl, with_ranks(ranks[0], name, overrides) if ranks else overrides)
    asked = chosen or emulator.ccl.default_algorithm
    loaded = emulator.algorithm(asked)
    named = collective or loaded.collectives[0]
    settings = emulator.settings(asked)
    parties: int = settings.world_size or emulator.world_size
    ops: int | None = None
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...]
    terms, tried = "", None
    size: Arguments = {"size": sizes[0] if sizes else BYTES}
    if fixed := "size" in arguments or "bytes_per_pe" in arguments:
        size = {
            "size": arguments.pop("size", None),
            "bytes_per_pe": arguments.pop("bytes_per_pe", None),
        }
    try:
        of_request: Arguments = {**arguments, **size, "emulator": emulator}
        case = prepare(named, asked, **of_request)
        notes = tuple(case.overruled)
        terms = _terms(case, checks, seed)
        parties = case.request.parties
    except tuple(CLASSES) as error:
        verdict, findings = verdict_of(error), error.findings
    else:
        with suppress(*CLASSES):
            ops = case.compiled().ops
        verdict, findings = judged(case, checks=checks, seed=seed, data=data)
        if verdict in ("correct", "undecided"):
            counts = tuple(sizes) or ((case.request.nbytes,) if fixed else ())
            family = Family(named, asked, topology, ccl, overrides, arguments, case, tuple(ranks), counts)
            tried = family.tried(verdict, checks=checks, seed=seed, data=data)
            verdict, findings = (tried.verdict, tried.findings) if tried.wrong else (verdict, findings)
    slots = depth(loaded, settings)
    return Checked(
        settings.algorithm, "kernel", named, parties, ops, slots, verdict, None, findings, None, notes, terms, tried
    )


def _terms(case: Case, checks: str, seed: int) -> str:
    """What a kernel is checked with, in words."""
    from ahbm.core.spec import machine_name

    request = case.request
    parts = [f"{request.nbytes} B {request.dtype}", *([request.op] if request.kind.reduces else [])]
    parts += [f"root {request.root}"] if request.kind.rooted else []
    parts += [f"on {machine_name(case.emulator.machine)}", f"checks {checks}", *([f"seed {seed}"] if seed else [])]
    return ", ".join(parts)


def _unread(path: str | Path, verdict: str, error: AhbmError) -> Checked:
    return Checked(str(path), None, None, None, None, None, verdict, None, error.findings)
