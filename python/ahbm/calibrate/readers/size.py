"""A measured size as it stands in a file of any program."""

from __future__ import annotations

from dataclasses import dataclass

from ahbm.errors import FormatError, Site

MOST_LINE, MOST_ROWS = 4096, 4096
WHAT = (
    "the text or JSON of nccl-tests or rccl-tests, a log of OSU's or Intel's MPI benchmarks, or a CSV of bytes,time_us"
)
PROGRAMS = {
    "all_reduce_perf": "all_reduce",
    "all_gather_perf": "all_gather",
    "reduce_scatter_perf": "reduce_scatter",
    "alltoall_perf": "all_to_all",
    "broadcast_perf": "broadcast",
    "reduce_perf": "reduce",
    "sendrecv_perf": "send_recv",
    "gather_perf": "gather",
    "scatter_perf": "scatter",
}
"""nccl-tests' programs and their collectives."""


@dataclass(frozen=True)
class Way:
    """A measured time as it stands in the table, in us, and how many elements were wrong."""

    us: object
    wrong: object = None

    @property
    def failed(self) -> bool:
        """Whether elements were counted as wrong; N/A and null say that nobody looked."""
        try:
            return float(str(self.wrong)) > 0
        except ValueError:
            return False


@dataclass(frozen=True)
class Size:
    """A row as it stands in the table."""

    bytes: object
    ways: tuple[Way, ...]
    line: int | str
    of: str = ""
    """Which of several tables of a file it is in: its type, operator and root, and the number of the run."""


def refused(
    code: str, message: str, origin: str, hint: str | None = None, line: int | str | None = None
) -> FormatError:
    place = origin if line is None else f"{origin}:{line}"
    return FormatError(code, message, sites=(Site("table", place),), hint=hint)


def check_line(line: str, origin: str, number: int) -> None:
    """Raises FormatError (AHBM-F210) for a line that is too long."""
    if len(line) > MOST_LINE:
        raise refused("AHBM-F210", f"a line of {len(line)} characters", origin, line=number)


def of_cpu(origin: str, place: int | str) -> FormatError:
    """AHBM-F210: the times are no times of collectives."""
    message = "the times are those of the CPU, which launches collectives and does not wait for them"
    return refused("AHBM-F210", message, origin, "measure without -C 1", place)
