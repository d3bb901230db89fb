"""Tables of measured collectives: the text and JSON of nccl-tests and rccl-tests, and CSV. What is read comes from
strangers."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from ahbm.base.collectives import COLLECTIVES
from ahbm.base.load import load_text
from ahbm.base.yaml_source import did_you_mean
from ahbm.errors import FormatError, Site

MOST_BYTES, MOST_ROWS, MOST_LINE, MOST_RANKS = 1 << 22, 4096, 4096, 1 << 20
LARGEST = 1 << 50
"""Bytes of one rank's array."""
SLOWEST_US = 1e9
WHAT = "the text or JSON of nccl-tests or rccl-tests, or a CSV of bytes,time_us"
COLUMNS = "bytes,dtype,time_us,algbw_gbs,busbw_gbs,time_in_place_us"
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
SPELLED = {"alltoall": "all_to_all", "allreduce": "all_reduce", "allgather": "all_gather"} | {
    "reducescatter": "reduce_scatter", "sendrecv": "send_recv"
}  # fmt: skip
_HEADER = ("size", "count", "type", "redop", "root")
"""The columns of nccl-tests' text before those of both ways; operator and root may be blank."""
_RANK = re.compile(r"#\s*Rank\s+(\d+)\b.*?\bon\s+(\S+)\s+device\s+\S+\s+\[\S+\]\s*(.*)")


@dataclass(frozen=True)
class Row:
    """A measured size: bytes of one rank's array, as nccl-tests counts them, and the time in us."""

    bytes: int
    us: float
    line: int | str
    """Where it stands: the number of a line, or "result 3" of a JSON document."""
    measured: bool = True
    """False: the neighbours say the time, for what stands in the table cannot be."""


@dataclass(frozen=True)
class Table:
    """The rows of one collective on one machine."""

    name: str
    """The file's name."""
    digest: str
    """The first 16 hex digits of the file's SHA-256."""
    collective: str
    ranks: int
    nodes: int
    accelerator: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    """What a reader should know of rows that were left out, and of what was supposed."""

    @property
    def measured(self) -> tuple[Row, ...]:
        """The rows that count as measurements."""
        return tuple(row for row in self.rows if row.measured)

    def half(self, held: bool) -> Table:
        """Every second row: from the first on, or those that are `held` back."""
        return replace(self, rows=self.rows[1 if held else 0 :: 2])


def read(path: str | Path, collective: str | None = None, ranks: int | None = None, nodes: int | None = None) -> Table:
    """The table in a file. `collective`, `ranks` and `nodes` stand in for what its head does not say.

    Times of data that the program found wrong do not count; a note says so. Raises FormatError: AHBM-F210 for no such
    table, F211 for rows that cannot be, F212 for what nobody says.
    """
    origin = str(path)
    try:
        text = load_text(path, MOST_BYTES)
    except OSError as error:
        raise FormatError("AHBM-F210", f"{origin} cannot be read: {error.strerror or error}") from error
    said: dict[str, str] = {}
    body = text.lstrip()
    if re.match(r"\{|\[\s*[\[\]{]", body):  # no line of MPI, which names a rank: [1,0]<stdout>:
        found = _json(text, origin, said)
    elif body.startswith("collective,"):
        found = _of_rccl(_rccl_csv(text, origin), origin, said)
    else:
        found = _text(text.split("\n"), origin, said)
    sizes = list(itertools.islice(found, MOST_ROWS + 1))
    if len(sizes) > MOST_ROWS:
        raise _refused("AHBM-F210", f"more than {MOST_ROWS} rows", origin, line=sizes[-1].line)
    given = {"op": collective, "ranks": ranks, "nodes": nodes}
    for key, value in given.items():
        if value is not None:
            if _spelled(said.get(key, str(value))) != _spelled(str(value)):
                raise _refused("AHBM-F212", f"the table says {key} {said[key]}, and {value} is given", origin)
            said[key] = str(value)
    return _table(Path(path).name, hashlib.sha256(text.encode()).hexdigest()[:16], sizes, said, origin)


@dataclass(frozen=True)
class _Way:
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
class _Size:
    """A row as it stands in the table."""

    bytes: object
    ways: tuple[_Way, ...]
    line: int | str


def _table(name: str, digest: str, sizes: list[_Size], said: Mapping[str, str], origin: str) -> Table:
    if not sizes:
        raise _refused("AHBM-F210", "it has no rows of a table", origin, WHAT)
    for key, option in (("op", "--collective"), ("ranks", "--ranks")):
        if key not in said:
            raise _refused("AHBM-F212", f"the table does not say {key}", origin, f"# {key}: ..., or {option}")
    op = _spelled(said["op"])
    if op not in COLLECTIVES:
        raise _refused("AHBM-F212", f"unknown collective {op[:60]!r}", origin, did_you_mean(op[:60], COLLECTIVES))
    ranks = _whole(said["ranks"], "ranks", origin, 2, MOST_RANKS)
    nodes = _whole(said.get("nodes", "1"), "nodes", origin, 1, ranks)
    if ranks % nodes:
        raise _refused("AHBM-F212", f"{ranks} ranks are no whole number on each of {nodes} nodes", origin)
    # rccl-tests counts what a rank receives; a row counts the array that is shared out.
    times = ranks if said.get("counts") == "received" and op in ("reduce_scatter", "scatter") else 1
    rows = [_row(each, times, origin) for each in sizes]
    for before, after in itertools.pairwise(rows):
        if after.bytes <= before.bytes:
            told = f"{after.bytes} bytes follow {before.bytes}: sizes grow"
            raise _refused("AHBM-F211", told, origin, line=after.line)
    notes = list(_failed(name, sizes, rows))
    if "nodes" not in said:
        notes.append(f"{name} does not say on how many nodes its {ranks} ranks were: one is supposed (--nodes)")
    right = tuple(row for row in rows if row.measured)
    return Table(name, digest, op, ranks, nodes, said.get("accelerator", "")[:60], right, tuple(notes))


def _failed(name: str, sizes: list[_Size], rows: list[Row]) -> Iterator[str]:
    """A note of the sizes of which data were wrong."""
    wrong = [row for each, row in zip(sizes, rows, strict=True) if any(way.failed for way in each.ways)]
    if wrong:
        left = sum(not row.measured for row in wrong)
        shown = ", ".join(f"{row.bytes}" for row in wrong[:4]) + (f" and {len(wrong) - 4} more" if wrong[4:] else "")
        out = f", and {left} of {len(rows)} rows are left out" if left else ""
        yield f"{name}:{wrong[0].line}: data were wrong at {shown} B: the times of wrong data do not count{out}"


def _spelled(name: str) -> str:
    """A collective as it is called here."""
    return SPELLED.get(name.lower(), name.lower())


def _text(lines: list[str], origin: str, said: dict[str, str]) -> Iterator[_Size]:
    hosts: dict[str, int] = {}
    numbers: set[int] = set()
    columns: dict[str, int] | None = None
    layout: _Layout | None = None
    for number, line in enumerate(lines, 1):
        if len(line) > MOST_LINE:
            raise _refused("AHBM-F210", f"a line of {len(line)} characters", origin, line=number)
        # Of several processes that print into one file, the name of a rank stands before its line.
        stripped = re.sub(r"^\S+:(?:\s*(?=#)|\s+(?=\d))", "", line.strip())
        for program, op in PROGRAMS.items():
            if re.search(rf"\b{program}\b", stripped):
                said.setdefault("op", op)
        if stripped.startswith("#"):
            names = stripped[1:].split()
            if names[:3] == list(_HEADER[:3]):
                layout = _Layout.of(names, origin, number)
            elif (rank := _RANK.match(stripped)) is not None:
                numbers.add(int(rank[1][:9]))
                hosts[rank[2]] = hosts.get(rank[2], 0) + 1
                said.setdefault("accelerator", rank[3].strip())
            elif ":" in stripped:
                key, _, value = stripped.lstrip("#").partition(":")
                if key.strip() in ("op", "ranks", "nodes", "accelerator") and value.strip():
                    said.setdefault(key.strip(), value.strip())
        elif stripped.startswith("bytes,"):
            columns = {name.strip(): at for at, name in enumerate(stripped.split(","))}
            if "time_us" not in columns:
                raise _refused("AHBM-F210", "a CSV without time_us", origin, f"the columns are {COLUMNS}", number)
        elif columns is not None:
            if stripped:
                yield _csv(stripped, columns, origin, number)
        elif len(parts := stripped.split()) > 2 and parts[2] in _TYPES and parts[0].isdigit() and parts[1].isdigit():
            if layout is None:
                hint = f"the line that names them: # {' '.join(_HEADER)} time algbw busbw #wrong ..."
                raise _refused("AHBM-F210", "rows without the names of their columns", origin, hint, number)
            yield layout.row(parts, origin, number)
    if numbers:
        said.setdefault("ranks", str(len(numbers)))
        said.setdefault("nodes", str(len(hosts)))


@dataclass(frozen=True)
class _Layout:
    """The columns of nccl-tests' text, as its header names them: size, count, type, operator and root, and then those
    of one way or two, which are alike. Operator, root and the first way may be blank."""

    way: tuple[str, ...]
    ways: int
    stamped: bool
    """A date and a time stand at the end."""

    @classmethod
    def of(cls, names: list[str], origin: str, number: int) -> _Layout:
        """Raises FormatError (AHBM-F210)."""
        stamped = names[-1] == "timestamp"
        rest = [name for name in names if name not in _HEADER][: -1 if stamped else None]
        if "cputime" in rest:
            told = "the times are those of the CPU, which launches collectives and does not wait for them"
            raise _refused("AHBM-F210", told, origin, "measure without -C 1", number)
        ways = rest.count("time")
        way = rest[: len(rest) // ways] if ways else []
        if ways not in (1, 2) or way * ways != rest or way[0] != "time":
            told = f"columns that are not known: {' '.join(rest)[:200]}"
            raise _refused("AHBM-F210", told, origin, "time algbw busbw #wrong, once or twice", number)
        return cls(tuple(way), ways, stamped)

    def row(self, parts: list[str], origin: str, number: int) -> _Size:
        """Raises FormatError (AHBM-F211)."""
        values = parts[3 : -2 if self.stamped else None]
        size = len(self.way)
        # What is left of those of each way are the operator and the root.
        there = next((n for n in range(self.ways, 0, -1) if 0 <= len(values) - n * size <= 2), 0)
        if not there:
            told = f"a row of {len(parts)} columns, under a header of {len(_HEADER) + self.ways * size}"
            raise _refused("AHBM-F211", told, origin, line=number)
        wrong = self.way.index("#wrong") if "#wrong" in self.way else None
        ways = [values[len(values) - n * size :][:size] for n in range(there, 0, -1)]
        found = [_Way(way[0], None if wrong is None else way[wrong]) for way in ways if way[0] != "N/A"]
        return _Size(parts[0], tuple(found), number)


def _csv(line: str, columns: Mapping[str, int], origin: str, number: int) -> _Size:
    parts = next(csv.reader([line]))
    if len(parts) <= columns["time_us"]:
        raise _refused("AHBM-F211", f"a row of {len(parts)} columns of {len(columns)}", origin, line=number)
    at = columns.get("time_in_place_us", len(parts))
    in_place = parts[at].strip() if at < len(parts) else ""
    times = [parts[columns["time_us"]], *([in_place] if in_place else [])]
    return _Size(parts[columns["bytes"]], tuple(map(_Way, times)), number)


_TYPES = frozenset(
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


def _json(text: str, origin: str, said: dict[str, str]) -> Iterator[_Size]:
    """`-J` of nccl-tests, `-Z json` of rccl-tests, and `ahbm bench --json`."""
    try:
        data, lines = _parsed(text)
    except (ValueError, RecursionError) as error:
        raise _refused("AHBM-F210", f"it is no JSON: {error}", origin) from error
    if lines:
        yield from _of_rccl(lines, origin, said)
        return
    if isinstance(data, list):
        data = {"results": data}
    results = data.get("results")
    if not isinstance(results, list) or len(results) > MOST_ROWS:
        raise _refused("AHBM-F210", f"JSON without a list of up to {MOST_ROWS} results", origin, WHAT)
    placed = [(f"result {number}", each) for number, each in enumerate(results, 1)]
    if results and isinstance(results[0], dict) and "inPlace" in results[0]:
        yield from _of_rccl(placed, origin, said)
        return
    config = data.get("config")
    found: dict[str, Any] = dict(config) if isinstance(config, dict) else {}
    program = " ".join(map(str, data["args"][:64])) if isinstance(data.get("args"), list) else ""
    for name, op in PROGRAMS.items():
        if re.search(rf"\b{name}\b", f"{program} {str(data.get('program', ''))[:200]}"):
            said["op"] = op
    if isinstance(found.get("collective"), str):
        said["op"] = found["collective"]
    devices = data.get("ranks", data.get("devices", found.get("devices")))
    if isinstance(devices, list) and devices:
        _devices([each if isinstance(each, dict) else {} for each in devices], found, said)
    for place, each in placed:
        if not isinstance(each, dict) or "error" in each:
            continue
        report = each.get("report")
        if isinstance(report, dict) and isinstance(report.get("ranks"), int):
            said["ranks"] = str(report["ranks"])
        ways = [way for name in ("out_of_place", "in_place") if isinstance(way := each.get(name), dict)]
        if any("cpu_time" in way for way in ways):
            told = "the times are those of the CPU, which launches collectives and does not wait for them"
            raise _refused("AHBM-F210", told, origin, "measure without -C 1", place)
        times = [_Way(way["time"], way.get("nwrong")) for way in ways if way.get("time") is not None]
        yield _Size(each.get("size"), tuple(times), place)


def _parsed(text: str) -> tuple[Any, list[tuple[int, Any]]]:
    """A document, or else those on the lines of a file, of which rccl-tests writes one for each result."""
    try:
        return json.loads(text), []
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
    return None, [(at, json.loads(line)) for at, line in enumerate(text.split("\n"), 1) if line.strip()]


def _devices(devices: list[dict[str, Any]], config: Mapping[str, Any], said: dict[str, str]) -> None:
    """What the list of devices says: there is one of each rank, or the first one of each process."""
    each = [config.get(name) for name in ("nthreads", "ngpus")]
    threads, gpus = (number if isinstance(number, int) else 1 for number in each)
    listed = len(devices) > 1 and [device.get("rank") for device in devices] == [*range(len(devices))]
    said["ranks"] = str(len(devices) * (1 if listed else threads * gpus))
    said["nodes"] = str(len({str(device.get("host", device.get("hostname", ""))) for device in devices}))
    names = (devices[0].get(key) for key in ("device_name", "device_info", "name"))
    said["accelerator"] = next((str(name) for name in names if name), "")


def _rccl_csv(text: str, origin: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of `-Z csv` of rccl-tests by the names of its header."""
    names: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MOST_LINE:
            raise _refused("AHBM-F210", f"a line of {len(line)} characters", origin, line=number)
        if not line.strip():
            continue
        parts = [part.strip() for part in next(csv.reader([line], skipinitialspace=True))]
        if not names:
            names = parts
            continue
        # With MPI, the header lacks the second of what the rows have.
        short = names[1:2] == ["ranks"] and len(parts) == len(names) + 1
        row = [*names[:1], "nodes", *names[1:]] if short else names
        if len(parts) != len(row):
            raise _refused("AHBM-F211", f"a row of {len(parts)} columns of {len(row)}", origin, line=number)
        yield number, dict(zip(row, parts, strict=True))


def _of_rccl(results: Iterable[tuple[int | str, Any]], origin: str, said: dict[str, str]) -> Iterator[_Size]:
    """The results of rccl-tests, one for each way of a size.

    Its `nodes` are groups of ranks that do not speak with each other, and its `ranksPerNode` the processes of one.
    """
    waiting: _Size | None = None
    for place, each in results:
        if not isinstance(each, dict):
            raise _refused("AHBM-F210", "it is no result of rccl-tests", origin, WHAT, place)
        known = {key.lower().lstrip("#"): value for key, value in each.items()}
        missing = [key for key in ("size", "inplace", "time") if key not in known]
        if missing:
            raise _refused("AHBM-F210", f"a result without {', '.join(missing)}", origin, WHAT, place)
        one = {"op": known.get("name", known.get("collective")), "ranks": _ranks(known)}
        for key, value in one.items():
            if value is not None and said.setdefault(key, str(value)) != str(value):
                told = f"{key} {str(value)[:60]} after {said[key][:60]}: a file is one table"
                raise _refused("AHBM-F212", told, origin, line=place)
        said["counts"] = "received"
        way = _Way(known["time"], known.get("wrong"))
        if waiting is not None and waiting.bytes == known["size"] and len(waiting.ways) == 1:
            yield replace(waiting, ways=(*waiting.ways, way))
            waiting = None
        else:
            if waiting is not None:
                yield waiting
            waiting = _Size(known["size"], (way,), place)
    if waiting is not None:
        yield waiting


def _ranks(known: Mapping[str, object]) -> int | None:
    """The ranks of a result of rccl-tests: GPUs of all processes of a group."""
    processes, gpus = known.get("rankspernode", 1), known.get("gpusperrank", known.get("gpus"))
    both = [int(str(number)) for number in (processes, gpus) if re.fullmatch(r"\d{1,9}", str(number))]
    return both[0] * both[1] if len(both) == 2 else None


def _row(size: _Size, times: int, origin: str) -> Row:
    """The quicker of both ways counts: what is slower was disturbed. Without right data, none does."""
    try:
        nbytes, us = int(str(size.bytes)) * times, [float(str(way.us)) for way in size.ways]
    except ValueError as error:
        raise _refused("AHBM-F211", str(error), origin, line=size.line) from error
    if not 0 < nbytes <= LARGEST:
        raise _refused("AHBM-F211", f"{nbytes} bytes are no size", origin, line=size.line)
    if not us or not all(isfinite(time) and 0 < time <= SLOWEST_US for time in us):
        told = ", ".join(map(str, us)) or "none"
        raise _refused("AHBM-F211", f"times of {nbytes} bytes that cannot be: {told} us", origin, line=size.line)
    right = [time for time, way in zip(us, size.ways, strict=True) if not way.failed]
    return Row(nbytes, min(right or us), size.line, bool(right))


def _whole(text: str, what: str, origin: str, least: int, most: int) -> int:
    if not re.fullmatch(r"\d{1,9}", text) or not least <= int(text) <= most:
        raise _refused("AHBM-F212", f"{what}: {text[:60]!r} is no number of {least} to {most}", origin)
    return int(text)


def _refused(
    code: str, message: str, origin: str, hint: str | None = None, line: int | str | None = None
) -> FormatError:
    place = origin if line is None else f"{origin}:{line}"
    return FormatError(code, message, sites=(Site("table", place),), hint=hint)
