"""`ahbm.run`: one collective on one machine, measured and checked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import ahbm
from ahbm.checks import demand, examine, parse
from ahbm.collectives import COLLECTIVES, Collective
from ahbm.config import Settings
from ahbm.elements import element
from ahbm.emulator import Emulator, Outcome
from ahbm.errors import BudgetError, ConfigError, Finding
from ahbm.placement import DPPolicy
from ahbm.reference import Reference, Task, inputs
from ahbm.report import Report, bandwidths
from ahbm.traces import check_name, write_executed, write_timeline
from ahbm.verify import Case, explain_wrong
from ahbm.yaml_source import did_you_mean

if TYPE_CHECKING:
    from ahbm._core import Machine


def run(
    collective: str = "all_reduce",
    algorithm: str | Path | None = None,
    topology: str | Path | Machine | None = None,
    *,
    bytes_per_rank: int | None = None,
    bytes_per_pe: int | None = None,
    dtype: str = "f16",
    placement: DPPolicy | None = None,
    data: bool = True,
    seed: int = 0,
    overrides: Mapping[str, object] | None = None,
    op: str = "sum",
    root: int = 0,
    src: int = 0,
    dst: int = 1,
    mode: str = "integers",
    check: bool | str | Iterable[str] = False,
    ccl: str | Path | None = None,
    emulator: Emulator | None = None,
    et: str | Path | None = None,
    trace: str | Path | None = None,
) -> Report:
    """Runs a collective among all ranks once and reports its simulated time.

    algorithm: a name in ccl.yaml, a module's name or path; None takes what ccl.yaml chooses.
    topology: a packaged name, a path, a SIP network's name or a Machine; None looks for one (`load_machine`).
    bytes_per_rank: size of one rank's array in the sense of nccl-tests, all chunks included; what does not divide into
    equal chunks is left out, as nccl-tests does. bytes_per_pe: the same for each PE that takes part. Without either,
    `n_elem` of ccl.yaml elements per PE.
    placement: runs on device tensors, one tile per cube, instead of host arrays.
    data: also move the data and compare with NumPy (`Report.wrong`); `mode` and `seed` choose it (`reference.inputs`).
    overrides: dotted path -> value for the keys of the topology and of ccl.yaml.
    check: True raises DataError (AHBM-V301) with a diff of contributions when the result is wrong. Names of
    `ahbm.checks.CHECKS` (a list, or one text with commas) or "all" also check the program: races, uninitialised reads,
    leftovers, deadlocks, results in every order, diverging bits, all of them across calls that follow each other; what
    fails is raised, what cannot be decided is in `Report.findings`.
    emulator: use this one (and what it has captured) instead of making one from topology, ccl and overrides.
    et: prefix of a Chakra trace to write, with the time that every operation took.
    trace: file to write the timeline to, `.pftrace` for Perfetto or `.json` for Chrome.

    Raises ConfigError (AHBM-C149: another name of a timeline; AHBM-C125: a size that is no whole number of elements,
    or absurd), TopologyError, UnsupportedError, KernelError, LintError, DeadlockError, BudgetError, DataError.
    """
    check_name(trace)
    case = prepare(
        collective,
        algorithm,
        topology,
        bytes_per_rank=bytes_per_rank,
        bytes_per_pe=bytes_per_pe,
        dtype=dtype,
        placement=placement,
        overrides=overrides,
        op=op,
        root=root,
        src=src,
        dst=dst,
        ccl=ccl,
        emulator=emulator,
    )
    task, wrong = case.task, None
    checks = frozenset() if isinstance(check, bool) else parse(check)
    if data:
        _check_memory(task)
        given = inputs(task, mode, seed)
        outcome, results = case.execute(given)
        reference = Reference(task, given, exact=mode == "integers")
        wrong = sum(len(reference.wrong(party, results[party])) for party in range(task.parties))
        if wrong and (check is True or "result" in checks):
            raise explain_wrong(case, given, results, reference)
    else:
        outcome, _ = case.execute((), data=False)
    if et is not None:
        write_executed(outcome.program, outcome.timeline, data, et)
    if trace is not None:
        write_timeline(outcome.program, trace)
    findings = demand(examine(case, outcome, checks, seed=seed))
    return _report(case, outcome, wrong, checks, findings)


def prepare(
    collective: str,
    algorithm: str | Path | None = None,
    topology: str | Path | Machine | None = None,
    *,
    bytes_per_rank: int | None = None,
    bytes_per_pe: int | None = None,
    dtype: str = "f16",
    placement: DPPolicy | None = None,
    overrides: Mapping[str, object] | None = None,
    op: str = "sum",
    root: int = 0,
    src: int = 0,
    dst: int = 1,
    ccl: str | Path | None = None,
    emulator: Emulator | None = None,
) -> Case:
    """What `run` would run, as a case to execute with data of one's own; arguments and errors are those of `run`."""
    if collective not in COLLECTIVES:
        raise ConfigError("AHBM-C105", f"unknown collective {collective!r}", hint=did_you_mean(collective, COLLECTIVES))
    if emulator is None:
        emulator = Emulator.load(topology, ccl, overrides)
    elif topology is not None or ccl is not None or overrides:
        raise ConfigError(
            "AHBM-C126",
            "an emulator already has its topology, ccl.yaml and overrides",
            hint="pass either the emulator or these",
        )
    kind, stored = COLLECTIVES[collective], element(dtype)
    name = str(algorithm) if algorithm is not None else None
    settings = emulator.settings(name or emulator.ccl.choose(collective, bytes_per_rank or 0))
    ranks = settings.world_size or emulator.world_size
    tiles = 1 if placement is None else placement.cubes(emulator.machine.cubes)
    pes = tiles if placement is not None else 1 if ranks > emulator.machine.sips else emulator.machine.cubes
    count = _count(
        kind, stored.storage.itemsize, settings, ranks, pes, placement is not None, bytes_per_rank, bytes_per_pe
    )
    task = Task(collective, stored, ranks * tiles, count, op, root, src, dst)
    return Case(emulator, task, ranks, name, placement)


def _count(
    kind: Collective,
    item: int,
    settings: Settings,
    ranks: int,
    pes: int,
    placed: bool,
    bytes_per_rank: int | None,
    bytes_per_pe: int | None,
) -> int:
    """Elements of a chunk of one party's array, where a rank's array is spread over `pes` PEs."""
    if bytes_per_rank is not None and bytes_per_pe is not None:
        raise ConfigError("AHBM-C125", "bytes_per_rank and bytes_per_pe are both given", hint="give one of them")
    if kind.name == "barrier":
        return 1
    given = bytes_per_rank if bytes_per_pe is None else bytes_per_pe
    if given is None:
        elements = settings.n_elem * pes
    elif given < 0 or given % item:
        raise ConfigError(
            "AHBM-C125",
            f"{given} bytes are no whole number of elements of {item} bytes",
            hint=f"give a multiple of {item}",
        )
    elif given * pes >= 1 << 62:
        raise ConfigError("AHBM-C125", f"{given} bytes are more than any machine has")
    else:
        elements = given // item * (1 if bytes_per_pe is None else pes)
    return elements // (pes if placed else kind.chunks(ranks))


def _check_memory(task: Task) -> None:
    """Raises BudgetError (AHBM-B301) where inputs, their copies and the machine's memory exceed this computer's."""
    asked = 3 * task.parties * task.size * task.element.storage.itemsize
    if asked > (most := os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")):
        raise BudgetError(
            "AHBM-B301",
            f"the data of {task.parties} x {task.size} elements take at least {asked} bytes, this computer has {most}",
            hint="--no-data (data=False) runs them for their time",
        )


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
    )
