"""`ahbm.run`: one collective on one machine, measured and checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import ahbm
from ahbm.checks import demand, examine, parse
from ahbm.collectives import COLLECTIVES, Collective
from ahbm.config import Settings
from ahbm.elements import element
from ahbm.emulator import Emulator, Outcome
from ahbm.errors import ConfigError, Finding
from ahbm.placement import DPPolicy
from ahbm.reference import Reference, Task, inputs
from ahbm.report import Report, bandwidths
from ahbm.verify import Case, explain_wrong
from ahbm.yaml_source import did_you_mean

if TYPE_CHECKING:
    from ahbm._core import Machine


class Arguments(TypedDict, total=False):
    """What to run besides the collective, its algorithm and the topology: keywords of `run` and of all that prepares
    a run. What is left out has the default that is named first."""

    bytes_per_rank: int | None
    """Size of one rank's array in the sense of nccl-tests, all chunks included; what does not divide into equal chunks
    is left out, as nccl-tests does. Without it and `bytes_per_pe`, `n_elem` of ccl.yaml elements per PE."""
    bytes_per_pe: int | None
    """The same for each PE that takes part."""
    dtype: str
    """f16; the kernels' name of an element type."""
    op: str
    """sum; the reduction operator."""
    root: int
    """Rank 0; of rooted collectives."""
    src: int
    """Rank 0; of send_recv."""
    dst: int
    """Rank 1; of send_recv."""
    placement: DPPolicy | None
    """None for host arrays; a policy for device tensors, one tile per cube."""
    overrides: Mapping[str, object] | None
    """Dotted path -> value for the keys of the topology and of ccl.yaml."""
    ccl: str | Path | None
    """Path of a ccl.yaml; None looks for one."""
    emulator: Emulator | None
    """Use this one (and what it has captured) instead of making one from topology, ccl and overrides."""


def run(
    collective: str = "all_reduce",
    algorithm: str | Path | None = None,
    topology: str | Path | Machine | None = None,
    *,
    data: bool = True,
    seed: int = 0,
    mode: str = "integers",
    check: bool | str | Iterable[str] = False,
    **arguments: Unpack[Arguments],
) -> Report:
    """Runs a collective among all ranks once and reports its simulated time; `prepare`, then `measure`.

    Raises what these raise.
    """
    case = prepare(collective, algorithm, topology, **arguments)
    return measure(case, data=data, seed=seed, mode=mode, check=check)


def measure(
    case: Case,
    *,
    data: bool = True,
    seed: int = 0,
    mode: str = "integers",
    check: bool | str | Iterable[str] = False,
) -> Report:
    """Runs a case once and reports its simulated time.

    data: also move the data and compare with NumPy (`Report.wrong`); `mode` and `seed` choose it (`reference.inputs`).
    check: True raises DataError (AHBM-V301) with a diff of contributions when the result is wrong. Names of
    `ahbm.checks.CHECKS` (a list, or one text with commas) or "all" also check the program: races, uninitialised reads,
    leftovers, deadlocks, results in every order, diverging bits, all of them across calls that follow each other; what
    fails is raised, what cannot be decided is in `Report.findings`.

    Raises ConfigError, UnsupportedError, KernelError, LintError, DeadlockError, BudgetError, DataError.
    """
    task, wrong = case.task, None
    checks = frozenset() if isinstance(check, bool) else parse(check)
    if data:
        given = inputs(task, mode, seed)
        outcome, results = case.execute(given)
        reference = Reference(task, given, exact=mode == "integers")
        wrong = sum(len(reference.wrong(party, results[party])) for party in range(task.parties))
        if wrong and (check is True or "result" in checks):
            raise explain_wrong(case, given, results, reference)
    else:
        outcome = case.timed()
    findings = demand(examine(case, outcome, checks, seed=seed))
    return _report(case, outcome, wrong, checks, findings)


def prepare(
    collective: str = "all_reduce",
    algorithm: str | Path | None = None,
    topology: str | Path | Machine | None = None,
    **arguments: Unpack[Arguments],
) -> Case:
    """What `run` would run, as a case to measure, explain or execute with data of one's own.

    algorithm: a name in ccl.yaml, a module's name or path; None takes what ccl.yaml chooses.
    topology: a packaged name, a path, a SIP network's name or a Machine; None looks for one (`load_machine`).

    Raises ConfigError (AHBM-C125: a size that is no whole number of elements, or absurd), TopologyError,
    UnsupportedError.
    """
    if collective not in COLLECTIVES:
        raise ConfigError("AHBM-C105", f"unknown collective {collective!r}", hint=did_you_mean(collective, COLLECTIVES))
    emulator, ccl, overrides = arguments.get("emulator"), arguments.get("ccl"), arguments.get("overrides")
    if emulator is None:
        emulator = Emulator.load(topology, ccl, overrides)
    elif topology is not None or ccl is not None or overrides:
        raise ConfigError(
            "AHBM-C126",
            "an emulator already has its topology, ccl.yaml and overrides",
            hint="pass either the emulator or these",
        )
    kind, stored, placement = (
        COLLECTIVES[collective],
        element(arguments.get("dtype", "f16")),
        arguments.get("placement"),
    )
    name = str(algorithm) if algorithm is not None else None
    settings = emulator.settings(name or emulator.ccl.choose(collective, arguments.get("bytes_per_rank") or 0))
    ranks = settings.world_size or emulator.world_size
    tiles = 1 if placement is None else placement.cubes(emulator.machine.cubes)
    pes = tiles if placement is not None else 1 if ranks > emulator.machine.sips else emulator.machine.cubes
    elements = _elements(kind, stored.storage.itemsize, settings, pes, arguments)
    task = Task(
        collective,
        stored,
        ranks * tiles,
        elements // (1 if kind.name == "barrier" else pes if placement is not None else kind.chunks(ranks)),
        arguments.get("op", "sum"),
        arguments.get("root", 0),
        arguments.get("src", 0),
        arguments.get("dst", 1),
    )
    return Case(emulator, task, ranks, name, placement)


def _elements(kind: Collective, item: int, settings: Settings, pes: int, arguments: Arguments) -> int:
    """Elements of one rank's array, which is spread over `pes` PEs."""
    per_rank, per_pe = arguments.get("bytes_per_rank"), arguments.get("bytes_per_pe")
    if per_rank is not None and per_pe is not None:
        raise ConfigError("AHBM-C125", "bytes_per_rank and bytes_per_pe are both given", hint="give one of them")
    if kind.name == "barrier":
        return 1
    given = per_rank if per_pe is None else per_pe
    if given is None:
        return settings.n_elem * pes
    if given < 0 or given % item:
        raise ConfigError(
            "AHBM-C125",
            f"{given} bytes are no whole number of elements of {item} bytes",
            hint=f"give a multiple of {item}",
        )
    if given * pes >= 1 << 62:
        raise ConfigError("AHBM-C125", f"{given} bytes are more than any machine has")
    return given // item * (1 if per_pe is None else pes)


def _report(
    case: Case, outcome: Outcome, wrong: int | None, checks: frozenset[str], findings: tuple[Finding, ...]
) -> Report:
    task, kind, machine = case.task, COLLECTIVES[case.task.collective], case.emulator.machine
    nbytes = task.size * task.element.storage.itemsize
    bound = case.emulator.limits.bound(
        task.collective,
        case.ranks,
        task.count * task.element.storage.itemsize if kind.name != "barrier" else 0,
        root=task.src if kind.paired else task.root if kind.rooted else 0,
        dst=task.dst if kind.paired else 0,
        tiles=None if case.placement is None else task.parties // case.ranks,
    )
    algbw, busbw = bandwidths(task.collective, task.parties, nbytes, outcome.latency_ps)
    return Report(
        collective=task.collective,
        algorithm=outcome.algorithm,
        topology=machine.topology,
        ranks=task.parties,
        bytes=nbytes,
        count=task.count,
        dtype=task.element.name,
        op=task.op if kind.reduces else "none",
        root=task.root if kind.rooted else -1,
        latency_ns=outcome.latency_ps / 1000,
        messages=outcome.messages,
        algbw_gbs=algbw,
        busbw_gbs=busbw,
        bound_ns=None if bound.ps is None else bound.ps / 1000,
        percent_of_bound=None if bound.ps is None or not outcome.latency_ps else 100 * bound.ps / outcome.latency_ps,
        limited_by=bound.reason,
        wrong=wrong,
        timeline_hash=f"{outcome.timeline_hash:016x}",
        machine_hash=f"{machine.hash:016x}",
        program_hash=f"{outcome.program.hash:016x}" if outcome.program else "",
        version=ahbm.__version__,
        ops=outcome.program.ops if outcome.program else 0,
        checks=tuple(sorted(checks)),
        findings=findings,
        case=case,
    )
