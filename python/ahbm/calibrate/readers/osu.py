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
from ahbm.calibrate.readers.text import cells

TITLE = re.compile(r"#\s*OSU\s+(.{1,60}?)\s+(Latency|Bandwidth|Bibandwidth|Message Rate)\b.{0,80}", re.IGNORECASE)
NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
"""The last words of titles, small, without what joins them."""
_COLUMN = re.compile(r"[A-Z][A-Za-z_. ]*?\s?\((?:us|%)\)|Iterations|Validation|Transmit Size")
_TIMES = ("Latency(us)", "Avg Latency(us)", "Pure Comm.(us)")
"""The columns that have the time of the collective alone."""


def is_log(content: str) -> bool:
    """Whether a text has the title of one of OSU's benchmarks."""
    return "OSU" in content and any(TITLE.search(line) for line in content.split("\n") if "OSU" in line)


def _measures(title: str) -> str | None:
    """The collective that a title names."""
    name = re.sub(r"[-_\s]", "", title.lower()).removesuffix("personalizedexchange")
    known = max((end for end in NAMES if name.endswith(end)), key=len, default="")
    return None if "neighbor" in name else NAMES.get(known)


def sizes(lines: list[str], origin: str, said: dict[str, str], wanted: str | None = None) -> Iterator[Size]:
    """The sizes of one collective, or of the `wanted` one; `said` is told which.

    Raises FormatError: AHBM-F210 for a benchmark of something else, F212 for a second one.
    """
    columns = runs = tables = place = 0
    hidden, checked = False, None
    for number, line in enumerate(lines, 1):
        check_line(line, origin, number)
        if (title := TITLE.search(line)) is not None:
            op = _measures(title[1]) if title[2].lower() == "latency" else None
            if wanted is not None and op != wanted:
                columns = runs = 0
                continue
            if op is None:
                message = f"{title[0].strip('# ')} measures nothing that is read"
                raise refused(
                    "AHBM-F210", message, origin, f"read are {', '.join(dict.fromkeys(NAMES.values()))}", number
                )
            if said.setdefault("op", op) != op:
                message = f"op {op} after {said['op']}: a file is one table"
                raise refused("AHBM-F212", message, origin, "--collective takes one of them", number)
            tables, runs, columns = tables + 1, tables + 1, 0
        elif runs and "# Size" in line:
            names = line[line.index("# Size") + 6 :]
            titles = [title.replace(" (", "(") for title in _COLUMN.findall(names)]
            place = next((at for at, title in enumerate(titles) if title in _TIMES), -1)
            if place < 0:
                raise refused("AHBM-F210", f"columns that are not known: {names.strip()[:100]}", origin, line=number)
            columns, hidden = 1 + len(titles), hidden or titles[place] == _TIMES[-1]
            checked = titles.index("Validation") if "Validation" in titles else None
        elif columns and (row := cells(line, columns)) is not None and "." in row[1]:
            wrong = None if checked is None else int(row[1 + checked] == "Fail")
            yield Size(row[0], (Way(row[1 + place], wrong),), number, f"run {runs}")
    said["counts"] = "share"
    said["noted"] = "times of OSU's benchmarks are the mean of the ranks"
    if hidden:
        said["noted"] += ", and those of collectives that do not block are those of the communication alone"
