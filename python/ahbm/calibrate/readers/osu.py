"""The text of the OSU micro-benchmarks' collectives, under `# OSU MPI-CUDA Allreduce Latency Test`.

Its sizes are those of a rank's share for all_gather, all_to_all, gather and scatter, and of the array for the others
(mvapich.cse.ohio-state.edu/benchmarks); times are the mean of the ranks. Of collectives that do not block
the time is that of the communication alone, which a table states beside what it took with a computation and how much of
it was hidden (`print_preamble_nbc` of osu_util_mpi.c).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ahbm.calibrate.readers.size import Size, Way, check_line, refused
from ahbm.calibrate.readers.text import PREFIX

TITLE = re.compile(r"#\s*OSU\s+(.{1,60}?)\s+(Latency|Bandwidth|Bibandwidth|Message Rate)\b.{0,80}", re.IGNORECASE)
NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
_ROW = re.compile(r"(.*?)(?:^|(?<=[\s:>\])|]))(\d{1,18})\s+(\d+\.\d+)((?:\s+\d+(?:\.\d+)?)*)\s*$")
_COLUMN = re.compile(r"[A-Z][A-Za-z_. ]*?\s?\((?:us|%)\)|Iterations")
_TIMES = ("Latency(us)", "Avg Latency(us)", "Pure Comm.(us)")
"""The columns that have the time of the collective alone."""
_DELIMITED = re.compile(r"\S.*[:>\])|]\s*$")


def is_log(content: str) -> bool:
    """Whether a text has the title of one of OSU's benchmarks."""
    return "OSU" in content and any(TITLE.search(line) for line in content.split("\n") if "OSU" in line)


def sizes(lines: list[str], origin: str, said: dict[str, str]) -> Iterator[Size]:
    """The sizes of one collective; `said` is told which.

    Raises FormatError: AHBM-F210 for a benchmark of something else, F212 for a second one.
    """
    columns = runs = place = 0
    hidden = False
    for number, line in enumerate(lines, 1):
        check_line(line, origin, number)
        if (title := TITLE.search(line)) is not None:
            op = NAMES.get(title[1].split()[-1].lower())
            if op is None or title[2].lower() != "latency":
                message = f"{title[0].strip('# ')} measures no collective"
                raise refused("AHBM-F210", message, origin, f"read are {', '.join(NAMES)}", number)
            if said.setdefault("op", op) != op:
                raise refused("AHBM-F212", f"op {op} after {said['op']}: a file is one table", origin, line=number)
            runs, columns = runs + 1, 0
        elif runs and "# Size" in line:
            names = line[line.index("# Size") + 6 :]
            titles = [title.replace(" (", "(") for title in _COLUMN.findall(names)]
            place = next((at for at, title in enumerate(titles) if title in _TIMES), -1)
            if place < 0:
                raise refused("AHBM-F210", f"columns that are not known: {names.strip()[:100]}", origin, line=number)
            columns, hidden = 1 + len(titles), hidden or titles[place] == _TIMES[-1]
        elif columns and (row := _ROW.match(line)) is not None:
            before = row[1].strip()
            times = [row[3], *row[4].split()]
            whole = 1 + len(times) == columns
            if whole and (not before or (PREFIX.fullmatch(before) and _DELIMITED.match(before))):
                yield Size(row[2], (Way(times[place]),), number, f"run {runs}")
    said["counts"] = "share"
    said["noted"] = "times of OSU's benchmarks are the mean of the ranks"
    if hidden:
        said["noted"] += ", and those of collectives that do not block are those of the communication alone"
