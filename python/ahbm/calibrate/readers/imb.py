"""The text of the Intel MPI Benchmarks (IMB-MPI1, IMB-NBC), under `# Benchmarking Allreduce`.

Each table is of one collective and one number of processes. Its sizes are those of a rank's share for Allgather,
Alltoall, Gather and Scatter, and of the array for the others; times are the mean of the ranks (`t_avg`), and of
collectives that do not block those of the communication alone (`t_pure`). Source: Intel MPI Benchmarks User Guide,
"Collective Benchmarks" and "Output".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ahbm.calibrate.readers.size import Size, Way, check_line, refused
from ahbm.calibrate.readers.text import cells

NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "bcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
_TITLE = re.compile(r"#\s*Benchmarking\s+(\w{1,40})\s*$")
_PROCESSES = re.compile(r"#\s*#processes\s*=\s*(\d{1,9})\b")
_TIMES = ("t_avg[usec]", "t_pure[usec]")


def is_log(content: str) -> bool:
    """Whether a text has the title of one of the benchmarks."""
    return "# Benchmarking" in content and "#bytes" in content


def sizes(
    lines: list[str], origin: str, said: dict[str, str], wanted: str | None = None, ranks: int | None = None
) -> Iterator[Size]:
    """The sizes of one collective and number of processes, or of those that are `wanted`; `said` is told which.

    Raises FormatError: AHBM-F210 for a benchmark of something else, F212 for a second collective or number.
    """
    name, op, titles, tables = "", None, list[str](), 0
    counted = False
    for number, line in enumerate(lines, 1):
        check_line(line, origin, number)
        if (title := _TITLE.search(line)) is not None:
            name, titles, counted = title[1], [], False
            op = NAMES.get(name.lower()) or NAMES.get(name.lower().removeprefix("i"))
        elif (processes := _PROCESSES.search(line)) is not None:
            counted = (wanted is None or op == wanted) and (ranks is None or int(processes[1]) == ranks)
            if not counted:
                continue
            if op is None:
                message = f"{name[:40] or 'a benchmark without a name'} measures nothing that is read"
                hint = f"read are {', '.join(NAMES.values())}; --collective takes one of them"
                raise refused("AHBM-F210", message, origin, hint, number)
            for key, value, option in (("op", op, "--collective"), ("ranks", str(int(processes[1])), "--ranks")):
                if said.setdefault(key, value) != value:
                    message = f"{key} {value} after {said[key]}: a file is one table"
                    raise refused("AHBM-F212", message, origin, f"{option} takes one of them", number)
            tables += 1
        elif counted and "#bytes" in line:
            titles = line[line.index("#bytes") :].split()
            if not any(time in titles for time in _TIMES):
                raise refused("AHBM-F210", f"columns without t_avg[usec]: {line.strip()[:100]}", origin, line=number)
        elif counted and titles and (row := cells(line, len(titles))) is not None:
            us = next(row[titles.index(time)] for time in _TIMES if time in titles)
            wrong = row[titles.index("defects")] if "defects" in titles else None
            yield Size(row[0], (Way(us, wrong),), number, f"run {tables}")
    said["counts"] = "share"
    said["noted"] = "times of the Intel MPI Benchmarks are the mean of the ranks"
