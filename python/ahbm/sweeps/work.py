"""Where cases run: the function that other processes are sent, and what a process keeps between its calls."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import connection
from typing import Any

from ahbm._core import Machine, Workload
from ahbm.errors import AhbmError, InterruptedRun
from ahbm.runs import bands
from ahbm.runs.rows import FAILED
from ahbm.sweeps.build import build
from ahbm.sweeps.case import Case, Places

COLUMNS = (
    "collective",
    "algorithm",
    "machine",
    "topology",
    "ranks",
    "bytes",
    "count",
    "dtype",
    "op",
    "root",
    "latency_ns",
    "algbw_gbs",
    "busbw_gbs",
    "bound_ns",
    "percent_of_bound",
    "limited_by",
    "messages",
    "memory_bytes",
    "wrong",
    "timeline_hash",
)
"""The fields of a report that a row holds."""
STORED = (*COLUMNS, "seed", "job", "links", "link_gbs", "calibration", "version", *FAILED)
"""The values of a row: `COLUMNS`; the seed of the data; the job, of replays; the links between SIPs, and GB/s of one
link; what is known of the error of a calibrated machine; the build of this package; `FAILED`."""
LATEST_S = 1.0
"""Seconds after which a batch comes back with what it has done."""
LOST = "AHBM-X140"
"""Code of a case whose process died. No proof: it may run on another day."""
INTERNAL = "AHBM-Z001"

Row = tuple[Any, ...]
"""Values of `STORED`."""


@dataclass
class _Here:
    token: str = ""
    places: Places | None = None


_here = _Here()


def begin(stop: Any) -> None:
    """A process of a pool begins: one thread, deaf to Ctrl-C, and gone when the other end of the pipe `stop` is closed,
    as it is when the process that has it dies."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        connection.wait([stop])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def ready() -> bool:
    """Whether a process answers."""
    return True


def places(token: str) -> Places:
    """What this process keeps for one sweep: what was read for another may have changed."""
    if _here.token != token or _here.places is None:
        _here.token, _here.places = token, Places()
    return _here.places


def work(token: str, cases: Sequence[Case]) -> tuple[list[Row], float]:
    """The rows of the first of `cases`, at least of one and of no more than `LATEST_S` allows; and the seconds that
    they took. `token` tells one sweep from another.
    """
    here = places(token)
    rows: list[Row] = []
    start = time.perf_counter()
    for case in cases:
        rows.append(row(case, here))
        if time.perf_counter() - start > LATEST_S:
            break
    return rows, time.perf_counter() - start


def row(case: Case, places: Places) -> Row:
    """The row of a case; that of an error where it does not run. Raises InterruptedRun."""
    try:
        return _replayed(case) if case.group.job is not None else _measured(case, places)
    except InterruptedRun:
        raise
    except AhbmError as error:
        return refusal(case, error.code, error.message)
    except Exception as error:
        # A defect: the other cases are none the worse for it.
        return refusal(case, INTERNAL, f"{type(error).__name__}: {error}")


def errors(machines: Iterable[str], rows: Iterable[Row]) -> list[str]:
    """What is told of the errors of rows on calibrated machines, by their machines in words."""
    places = [STORED.index(name) for name in ("job", "bytes", "calibration")]
    return bands.of_rows((machine, *(row[at] for at in places)) for machine, row in zip(machines, rows, strict=True))


def refusal(case: Case, code: str, message: str) -> Row:
    """The row of a case that did not run."""
    group, found = case.group, dict.fromkeys(STORED)
    found |= {"algorithm": case.algorithm or "-", "machine": group.machine, "version": build()}
    found |= {"seed": case.seed, "job": group.job, "code": code, "message": message}
    if group.job is None:
        found |= {"collective": group.sweep.collective, "dtype": group.sweep.dtype, "bytes": case.nbytes}
    return tuple(found.values())


def report(case: Case, places: Places) -> Any:
    """The report of a case. A row says whether a result that was to be checked is right: where this cannot be decided
    without data, data move. Raises what running it raises."""
    from ahbm.check.checks import parse
    from ahbm.runs.measure import measure

    sweep = case.group.sweep
    emulator = places.emulator(sweep)
    prepared = sweep.case(case.algorithm, case.nbytes, emulator, case.resized)
    decides = not isinstance(sweep.check, bool) and "result" in parse(sweep.check)
    return measure(prepared, data=sweep.data or (None if decides else False), seed=case.seed, check=sweep.check)


def _measured(case: Case, places: Places) -> Row:
    from ahbm.choice.configured import likely

    sweep = case.group.sweep
    emulator = places.emulator(sweep)
    try:
        found = report(case, places)
    except AhbmError as error:
        if case.algorithm is not None:
            raise
        name = likely(emulator, sweep.collective, case.nbytes)
        values = dict(zip(STORED, refusal(case, error.code, error.message), strict=True))
        return tuple((values | {"algorithm": name}).values())
    finally:
        # Cases of a sweep differ: none needs the program of another.
        emulator.forget_programs()
    measured = (getattr(found, name) for name in COLUMNS)
    return (*measured, case.seed, None, *_links(emulator.machine), found.error.note, build(), None, None)


def _replayed(case: Case) -> Row:
    from ahbm.job.options import OfJob
    from ahbm.job.replay import replay
    from ahbm.job.transformer import read_manifest, transformer_of
    from ahbm.runs import plans

    sweep, job = case.group.sweep, str(case.group.job)
    by = None if case.algorithm is None else sweep.given.get(case.algorithm, case.algorithm)
    of = OfJob(topology=sweep.topology, ccl=sweep.ccl, overrides=sweep.overrides, algorithm=by)
    target: str | Workload = job
    if job.endswith((".yaml", ".yml")):
        target = transformer_of(read_manifest(job)).workload(plans.label(job))
    found = replay(target, plans.label(job), of.setup(), of.how)
    values = dict.fromkeys(STORED) | {
        "algorithm": case.algorithm or "-",
        "machine": case.group.machine,
        "topology": found.topology,
        "ranks": len(found.ranks),
        "latency_ns": found.latency_ns,
        "timeline_hash": found.times_hash,
        "job": job,
        "calibration": "; ".join(found.calibration) or None,
        "version": build(),
    }
    return tuple(values.values())


@lru_cache(8)
def _links(machine: Machine) -> tuple[int, float | None]:
    """Links between SIPs, and the GB/s of one of them."""
    told = dict(machine.parameters).get("system.sips.link.bandwidth_gbs", "").removesuffix("GB/s")
    return len(machine.links_between_sips()), float(told) if told else None
