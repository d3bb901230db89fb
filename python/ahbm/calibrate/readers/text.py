"""The text of nccl-tests, and CSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ahbm.calibrate.readers.size import PROGRAMS, Size, Way, check_line, of_cpu, refused
from ahbm.errors import FormatError

COLUMNS = "bytes,dtype,time_us,algbw_gbs,busbw_gbs,time_in_place_us"
HEADER = ("size", "count", "type", "redop", "root")
"""The columns of nccl-tests' text before those of both ways; operator and root may be blank."""
RANK = re.compile(r"#\s*Rank\s+(\d+)\b.*?\bon\s+(\S+)\s+device\s+\S+\s+\[\S+\]\s*(.*)")
_MESSAGE = re.compile(r"\S{1,200}:\d{1,9}:\d{1,9} \[\d{1,4}$")
"""What NCCL_DEBUG writes before `] NCCL INFO`, maybe beside a row."""
_PROGRAM = re.compile(r"(?:test starting: |/)(\w{1,40}_perf)\b")
_TIME = re.compile(r"N/A|[-+]?(?:[\d.]+(?:[eE][-+]?\d+)?|nan|inf)", re.IGNORECASE)
TYPES = frozenset(
    (
        "int8",
        "uint8",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "half",
        "float",
        "double",
        "bfloat16",
        "char",
        "int",
        "f8e4m3",
        "f8e5m2",
        "fp8_e4m3",
        "fp8_e5m2",
    )
)
"""nccl-tests' names of types."""
_ROW = re.compile(rf"(?<![^\s:>\])|])\d+\s+\d+\s+(?:{'|'.join(sorted(TYPES))})\s")
PREFIX = re.compile(r"\S{1,200}(?:\s+\S{1,200}){0,3}\s*|\S{1,200}(?:\s+\S{1,200}){4,7}(?<=[:>\])|])\s*")
"""What launchers write before a line: `0: `, `[0] `, `[1,0]<stdout>:`, `[pod/name/container] `, a time of the day. What
has more words than four ends as such a mark does: `Mon Nov 11 10:22:33 2024[1,0]<stdout>:`."""


_SIZE = re.compile(r"(.*[:>\])|])?(\d{1,18})")
_CELL = re.compile(r"\d{1,18}(?:\.\d{1,18})?|Pass|Fail")
_ENDS = re.compile(r".*[:>\])|]|(?:.*\s)?\S*\d:\d\d:\d\d\S*(?: std(?:out|err) [FP])?")
"""How what launchers write ends: with a mark, or with a time of the day."""


def cells(line: str, columns: int) -> list[str] | None:
    """The cells of a row of so many numbers, behind what a launcher writes before a line; none for what is no row."""
    *before, first = line.split()[: 1 - columns] or [""]
    rest = line.split()[1 - columns :]
    size = _SIZE.fullmatch(first)
    if size is None or len(rest) != columns - 1 or not all(map(_CELL.fullmatch, rest)):
        return None
    prefix = " ".join([*before, size[1] or ""]).strip()
    if prefix and not (PREFIX.fullmatch(prefix) and _ENDS.fullmatch(prefix)):
        return None
    return [size[2], *rest]


def without_prefix(line: str) -> str:
    """A line of nccl-tests without what a launcher writes before those of each process (mpirun, srun, kubectl)."""
    stripped = line.strip()
    row = _ROW.search(stripped)
    if (mark := stripped.find("] NCCL ")) >= 0:
        before = max(mark - 240, 0)
        if (message := _MESSAGE.search(stripped[before:mark])) is not None:
            # A row may stand before or behind what another process wrote.
            if row is None or before + message.start() > row.start():
                return without_prefix(stripped[: before + message.start()])
            return stripped[row.start() :]
    at = row.start() if row is not None else stripped.find("#")
    return stripped[at:] if at > 0 and PREFIX.fullmatch(stripped[:at]) else stripped


@dataclass
class Head:
    """What stands before rows."""

    op: str | None = None
    numbers: set[int] = field(default_factory=set)
    """Of ranks."""
    hosts: set[str] = field(default_factory=set)


def sizes(lines: list[str], origin: str, said: dict[str, str], wanted: str | None = None) -> Iterator[Size]:
    """The sizes of the tables of one collective, or of the `wanted` one; `said` is told what their heads say.

    Raises FormatError: AHBM-F210 for no such text, F211 for a row that cannot be, F212 for a second table that is not
    of the same collective and ranks.
    """
    skips, runs = False, 0
    cycles: dict[str, tuple[str, int]] = {}
    last = next((at for at in range(len(lines), 0, -1) if lines[at - 1].strip()), 0)
    columns: dict[str, int] | None = None
    layout: Layout | None = None
    first = head = Head()
    has_rows = False
    for number, line in enumerate(lines, 1):
        check_line(line, origin, number)
        stripped = without_prefix(line)
        op = next((op for program, op in PROGRAMS.items() if re.search(rf"\b{program}\b", stripped)), None)
        if op is None and wanted is None and (other := _PROGRAM.search(stripped)) is not None:
            message = f"{other[1]} measures nothing that is read"
            raise refused("AHBM-F210", message, origin, f"read are {', '.join(PROGRAMS)}", number)
        rank = RANK.match(stripped)
        if has_rows and (op or rank):
            head, has_rows, skips = Head(), False, False
            runs += 1
        head.op = op or head.op
        if op and wanted is not None and op != wanted:
            skips = True
            if head is first:
                first = head = Head(op)
        elif op and wanted is not None:
            skips = False
        if head is first and op and not skips:
            said.setdefault("op", op)
        if rank is not None:
            head.numbers.add(int(rank[1][:9]))
            head.hosts.add(rank[2])
            said.setdefault("accelerator", rank[3].strip())
        elif stripped.startswith("#"):
            names = stripped[1:].split()
            if names[:3] == list(HEADER[:3]):
                layout = Layout.of(names, origin, number)
            elif ":" in stripped:
                key, _, value = stripped.lstrip("#").partition(":")
                if key.strip() in ("op", "ranks", "nodes", "accelerator") and value.strip():
                    said.setdefault(key.strip(), value.strip())
        elif re.match(r"\"?bytes\"?\s*,", stripped):
            columns = {name.strip(' "'): at for at, name in enumerate(stripped.split(","))}
            if "time_us" not in columns:
                raise refused("AHBM-F210", "a CSV without time_us", origin, f"the columns are {COLUMNS}", number)
        elif columns is not None:
            if stripped:
                yield _of_csv(stripped, columns, origin, number)
        elif len(parts := stripped.split()) > 2 and parts[2] in TYPES and parts[0].isdigit() and parts[1].isdigit():
            if layout is None:
                hint = f"the line that names them: # {' '.join(HEADER)} time algbw busbw #wrong ..."
                raise refused("AHBM-F210", "rows without the names of their columns", origin, hint, number)
            if skips:
                has_rows = True
                continue
            if first.op != head.op and wanted is not None:
                first = head
            if not has_rows and head is not first:
                _check_same(head, first, origin, number)
            has_rows = True
            try:
                found = layout.row(parts, origin, number)
            except FormatError:
                if number < last or len(lines) > last:
                    raise
                said["noted"] = f"line {number}: the file ends in the middle of this row, which does not count"
                continue
            of = f"{found.of} {runs}" if runs else found.of
            # `-N` repeats all sizes under one header.
            begins, cycle = cycles.get(of, (parts[0], 0))
            cycles[of] = begins, cycle + (parts[0] == begins)
            yield replace(found, of=f"{of}, cycle {cycles[of][1]}" if cycles[of][1] > 1 else of)
    if first.numbers:
        said.setdefault("ranks", str(len(first.numbers)))
        said.setdefault("nodes", str(len(first.hosts)))


def _check_same(head: Head, first: Head, origin: str, number: int) -> None:
    both = ((head.op, first.op), (len(head.numbers), len(first.numbers)), (len(head.hosts), len(first.hosts)))
    for what, (here, before) in zip(("op", "ranks", "nodes"), both, strict=True):
        if here and before and here != before:
            message = f"{what} {here} after {before}: a file is one table"
            hint = "--collective takes one of them" if what == "op" else "a file for each run of a program"
            raise refused("AHBM-F212", message, origin, hint, number)


@dataclass(frozen=True)
class Layout:
    """The columns of nccl-tests' text, as its header names them: size, count, type, operator and root, and then those
    of one way or two, which are alike. Operator, root and the first way may be blank."""

    way: tuple[str, ...]
    ways: int
    stamped: bool
    """A date and a time stand at the end."""

    @classmethod
    def of(cls, names: list[str], origin: str, number: int) -> Layout:
        """Raises FormatError (AHBM-F210)."""
        stamped = names[-1] == "timestamp"
        rest = [name for name in names if name not in HEADER][: -1 if stamped else None]
        if "cputime" in rest:
            raise of_cpu(origin, number)
        ways = rest.count("time")
        way = rest[: len(rest) // ways] if ways else []
        if ways not in (1, 2) or way * ways != rest or way[0] != "time":
            message = f"columns that are not known: {' '.join(rest)[:200]}"
            raise refused("AHBM-F210", message, origin, "time algbw busbw #wrong, once or twice", number)
        return cls(tuple(way), ways, stamped)

    def _is_cut(self, nbytes: str, values: list[str]) -> bool:
        """Whether a row with one value more than its ways have has operator and root, and lacks the last column: times
        and bandwidths fit each other behind both, and do not behind one."""
        return self.way[:2] == ("time", "algbw") and not _fit(nbytes, *values[1:3]) and _fit(nbytes, *values[2:4])

    def row(self, parts: list[str], origin: str, number: int) -> Size:
        """Raises FormatError (AHBM-F211)."""
        values = parts[3 : -2 if self.stamped else None]
        size = len(self.way)
        # What is left of those of each way are the operator and the root.
        there = next((n for n in range(self.ways, 0, -1) if 0 <= len(values) - n * size <= 2), 0)
        if not there:
            message = f"a row of {len(parts)} columns, under a header of {len(HEADER) + self.ways * size}"
            raise refused("AHBM-F211", message, origin, line=number)
        if len(values) - there * size == 1 and self._is_cut(parts[0], values):
            message = "a row that is cut: its operator and root are there, and its last column is not"
            raise refused("AHBM-F211", message, origin, line=number)
        wrong = self.way.index("#wrong") if "#wrong" in self.way else None
        ways = [values[len(values) - n * size :][:size] for n in range(there, 0, -1)]
        for time, *_ in ways:
            if not _TIME.fullmatch(time):
                message = f"{time[:60]!r} stands where a time should: the row is cut, or is not that of its header"
                raise refused("AHBM-F211", message, origin, line=number)
        found = [Way(way[0], None if wrong is None else way[wrong]) for way in ways if way[0] != "N/A"]
        return Size(parts[0], tuple(found), number, " ".join([parts[2], *values[: len(values) - there * size]]))


def _fit(nbytes: str, us: str, gbs: str) -> bool:
    """Whether a bandwidth is that of so many bytes in such a time, as far as two digits tell."""
    try:
        return abs(int(nbytes) / float(us) / 1000 - float(gbs)) <= 0.01 + 0.05 * float(gbs)
    except (ValueError, ZeroDivisionError):
        return False


def _of_csv(line: str, columns: Mapping[str, int], origin: str, number: int) -> Size:
    parts = next(csv.reader([line]))
    if len(parts) <= columns["time_us"]:
        raise refused("AHBM-F211", f"a row of {len(parts)} columns of {len(columns)}", origin, line=number)
    at = columns.get("time_in_place_us", len(parts))
    in_place = parts[at].strip() if at < len(parts) else ""
    times = [parts[columns["time_us"]], *([in_place] if in_place else [])]
    return Size(parts[columns["bytes"]], tuple(map(Way, times)), number)
