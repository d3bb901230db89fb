"""How a job is read, and the job in a trace."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ahbm._core import Workload, plan_files
from ahbm.base.load import load_text
from ahbm.config.reading import PLAIN, Reading
from ahbm.errors import BudgetError, ConfigError, Finding, UnsupportedError
from ahbm.job import nsight


@dataclass(frozen=True, kw_only=True)
class How:
    """How a job is read and replayed."""

    groups: str | Path | None = None
    """A JSON file with the ranks of process groups that the trace only names."""
    dtype: str = "u8"
    op: str = "sum"
    """Of collectives that do not state theirs."""
    lanes: str = "device"
    """Which nodes of a rank run side by side: "device", "streams", "astra" or "unlimited"."""
    factors: Sequence[tuple[str, float]] = ()
    """Computations whose name contains a text take so many times as long."""
    step: int | None = None
    """Traces of PyTorch: the profiler's step of this number; all by default."""
    host_gaps: bool = False
    """Traces of PyTorch: the time that the host takes between launches counts."""
    symmetric: bool = False
    """Traces of PyTorch: all ranks do what the one rank with a trace does."""
    replicas: int | None = None
    """Data-parallel replicas, in place of those that were recorded."""
    fold: bool = True
    """Of ranks that do the same one is simulated; the times are those of all ranks."""
    reading: Reading = PLAIN


AS_IT_IS = How()
"""As jobs are replayed where nothing else is said."""


def parse_factor(text: str) -> tuple[str, float]:
    """`"gemm=0.5"` as text and factor. Raises ConfigError (AHBM-C146)."""
    name, _, value = text.rpartition("=")
    try:
        factor = float(value)
    except ValueError:
        factor = math.nan
    if not name or not 0 <= factor <= 1e6:
        raise ConfigError("AHBM-C146", f"--compute {text}: no TEXT=FACTOR with a factor of 0 to 1e6", hint="gemm=0.5")
    return name, factor


def read(path: str | Path, how: How = AS_IT_IS) -> Workload:
    """The job in a trace; groups that it only names are those of the file beside it, where there is one.

    Raises FormatError, UnsupportedError (AHBM-U236 where it cannot have so many replicas), BudgetError, and
    DeadlockError (AHBM-D102) for ranks that enter their collectives in orders that wait for each other.
    """
    of_file = (
        partial(Workload.of_profiles, Path(path).stem, nsight.profiles(path))
        if nsight.is_export(path)
        else partial(Workload.read, path, lenient=how.reading.lenient)
    )
    reading = partial(
        of_file,
        limits=how.reading.limits,
        step=how.step,
        host_gaps=how.host_gaps,
        symmetric=how.symmetric,
        scaled=how.replicas is not None,
    )
    try:
        job = reading(groups=read_groups(how.groups) if how.groups is not None else {})
    except BudgetError as error:
        total = sum(file.stat().st_size for file in plan_files(path) if file.is_file())
        if error.code != "AHBM-B201" or "file_bytes" not in error.message:
            raise
        hint = f"--limit file_bytes={total} is enough for all files of the trace"
        raise BudgetError(error.code, error.message, sites=error.sites, hint=hint) from None
    except UnsupportedError as error:
        beside = _groups_beside(Path(path))
        if error.code != "AHBM-U234" or how.groups is not None:
            raise
        if not beside.is_file():
            # ASTRA-sim names the file in its command line.
            folder = Path(path) if Path(path).is_dir() else Path(path).parent
            likely = sorted(folder.glob("*comm_group*.json"))
            if not likely:
                raise
            hint = f"--groups {likely[0]}, if the groups in it are those of the trace"
            raise UnsupportedError(error.code, error.message, sites=error.sites, hint=hint) from None
        job = reading(groups=read_groups(beside))
    return job if how.replicas is None else job.replicated(how.replicas)


def _groups_beside(path: Path) -> Path:
    """The file of groups that is written with a trace: `PREFIX.groups.json` beside `PREFIX.0.et`."""
    prefix = re.sub(r"(\.[0-9]+)?(\.et|\.json)?$", "", path.name)
    return path.with_name(f"{prefix}.groups.json")


def left_out(workload: Workload) -> Iterator[Finding]:
    """Warnings about what lenient reading left out of a job, and what its source leaves open."""
    dangling, cut = workload.left_out
    if dangling:
        yield Finding("AHBM-F134", f"{dangling} dependencies on nodes that do not exist are left out")
    if cut:
        yield Finding("AHBM-F135", f"{cut} dependencies that closed circles are left out")
    yield from map(Finding.from_json, workload.notes)


def read_groups(path: str | Path) -> Mapping[str, list[int]]:
    """The process groups in a JSON file. Raises ConfigError (AHBM-C153)."""
    try:
        found = json.loads(load_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError("AHBM-C153", f"{path}: {error}") from None
    right = isinstance(found, dict) and all(
        isinstance(ranks, list) and all(type(rank) is int and 0 <= rank < 2**32 for rank in ranks)
        for ranks in found.values()
    )
    if not right:
        raise ConfigError("AHBM-C153", f"{path} is no object of rank lists", hint='{"tp0": [0, 1], "tp1": [2, 3]}')
    groups: dict[str, list[int]] = found
    return groups
