"""Tables of measured collectives: the text and JSON of nccl-tests, and CSV. What is read comes from strangers."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping
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
_RANK = re.compile(r"#\s*Rank\s+(\d+)\b.*?\bon\s+(\S+)\s+device\s+\S+\s+\[\S+\]\s*(.*)")


@dataclass(frozen=True)
class Row:
    """A measured size: bytes of one rank's array, as nccl-tests counts them, and the time in us."""

    bytes: int
    us: float
    line: int
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
    """What a reader should know of rows that were changed."""

    @property
    def measured(self) -> tuple[Row, ...]:
        """The rows that count as measurements."""
        return tuple(row for row in self.rows if row.measured)

    def half(self, held: bool) -> Table:
        """Every second row: from the first on, or those that are `held` back."""
        return replace(self, rows=self.rows[1 if held else 0 :: 2])


def read(path: str | Path, collective: str | None = None, ranks: int | None = None, nodes: int | None = None) -> Table:
    """The table in a file. `collective`, `ranks` and `nodes` stand in for what its head does not say.

    Raises FormatError: AHBM-F210 for no such table, F211 for rows that cannot be, F212 for what nobody says.
    """
    origin = str(path)
    try:
        text = load_text(path, MOST_BYTES)
    except OSError as error:
        raise FormatError("AHBM-F210", f"{origin} cannot be read: {error.strerror or error}") from error
    said: dict[str, str] = {}
    body = text.lstrip()
    rows = list(_json(body, origin, said)) if body.startswith("{") else list(_text(text.split("\n"), origin, said))
    given = {"op": collective, "ranks": ranks, "nodes": nodes}
    for key, value in given.items():
        if value is not None:
            if said.get(key, str(value)) != str(value):
                raise _refused("AHBM-F212", f"the table says {key} {said[key]}, and {value} is given", origin)
            said[key] = str(value)
    return _table(Path(path).name, hashlib.sha256(text.encode()).hexdigest()[:16], rows, said, origin)


def _table(name: str, digest: str, rows: list[Row], said: Mapping[str, str], origin: str) -> Table:
    if not rows:
        raise _refused("AHBM-F210", "it has no rows of a table", origin, f"nccl-tests' text or JSON, or {COLUMNS}")
    for key, option in (("op", "--collective"), ("ranks", "--ranks")):
        if key not in said:
            raise _refused("AHBM-F212", f"the table does not say {key}", origin, f"# {key}: ..., or {option}")
    op = SPELLED.get(said["op"], said["op"])
    if op not in COLLECTIVES:
        raise _refused("AHBM-F212", f"unknown collective {op[:60]!r}", origin, did_you_mean(op[:60], COLLECTIVES))
    ranks = _whole(said["ranks"], "ranks", origin, 2, MOST_RANKS)
    nodes = _whole(said.get("nodes", "1"), "nodes", origin, 1, ranks)
    if ranks % nodes:
        raise _refused("AHBM-F212", f"{ranks} ranks are no whole number on each of {nodes} nodes", origin)
    for before, after in itertools.pairwise(rows):
        if after.bytes <= before.bytes:
            told = f"{after.bytes} bytes follow {before.bytes}: sizes grow"
            raise _refused("AHBM-F211", told, origin, line=after.line)
    return Table(name, digest, op, ranks, nodes, said.get("accelerator", "")[:60], tuple(rows))


def _text(lines: list[str], origin: str, said: dict[str, str]) -> Iterator[Row]:
    hosts: dict[str, int] = {}
    numbers: set[int] = set()
    columns: dict[str, int] | None = None
    count = 0
    for number, line in enumerate(lines, 1):
        if len(line) > MOST_LINE:
            raise _refused("AHBM-F210", f"a line of {len(line)} characters", origin, line=number)
        stripped = line.strip()
        if stripped.startswith("#"):
            if (rank := _RANK.match(stripped)) is not None:
                numbers.add(int(rank[1][:9]))
                hosts[rank[2]] = hosts.get(rank[2], 0) + 1
                said.setdefault("accelerator", rank[3].strip())
            elif ":" in stripped:
                key, _, value = stripped.lstrip("#").partition(":")
                if key.strip() in ("op", "ranks", "nodes", "accelerator") and value.strip():
                    said.setdefault(key.strip(), value.strip())
            for program, op in PROGRAMS.items():
                if re.search(rf"\b{program}\b", stripped):
                    said.setdefault("op", op)
            continue
        for program, op in PROGRAMS.items():
            if re.search(rf"\b{program}\b", stripped):
                said.setdefault("op", op)
        if stripped.startswith("bytes,"):
            columns = {name.strip(): at for at, name in enumerate(stripped.split(","))}
            if "time_us" not in columns:
                raise _refused("AHBM-F210", "a CSV without time_us", origin, f"the columns are {COLUMNS}", number)
            continue
        row = _csv(stripped, columns, origin, number) if columns else _columns(stripped, origin, number)
        if row is not None:
            count += 1
            if count > MOST_ROWS:
                raise _refused("AHBM-F210", f"more than {MOST_ROWS} rows", origin, line=number)
            yield row
    if numbers:
        said.setdefault("ranks", str(len(numbers)))
        said.setdefault("nodes", str(len(hosts)))


def _csv(line: str, columns: Mapping[str, int], origin: str, number: int) -> Row | None:
    if not line:
        return None
    parts = next(csv.reader([line]))
    if len(parts) <= columns["time_us"]:
        raise _refused("AHBM-F211", f"a row of {len(parts)} columns of {len(columns)}", origin, line=number)
    at = columns.get("time_in_place_us", len(parts))
    in_place = parts[at].strip() if at < len(parts) else ""
    times = [parts[columns["time_us"]], *([in_place] if in_place else [])]
    return _row(parts[columns["bytes"]], times, origin, number)


def _columns(line: str, origin: str, number: int) -> Row | None:
    """A row of nccl-tests' text: size, count, type, redop, root, and for both ways time, algbw, busbw, #wrong. Lines of
    the log among them are no rows."""
    # Of several processes that print into one file, the name of a rank stands before its line.
    parts = re.sub(r"^\S+:\s+(?=\d)", "", line).split()
    at = next((place for place, part in enumerate(parts) if part in _TYPES), None)
    if at != 2 or not parts[0].isdigit() or not parts[1].isdigit():
        return None
    numbers = [part for part in parts[3:] if _number(part) or part == "N/A"]
    # Root is the first; then four columns for each way. Some collectives have neither operator nor root.
    start = len(numbers) - 8 if len(numbers) >= 8 else len(numbers) - 4
    if start < 0:
        raise _refused("AHBM-F211", f"a row of {len(parts)} columns", origin, line=number)
    times = [numbers[start], *([numbers[start + 4]] if len(numbers) >= 8 else [])]
    return _row(parts[0], [time for time in times if time != "N/A"], origin, number)


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


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _json(text: str, origin: str, said: dict[str, str]) -> Iterator[Row]:
    """`-J` of nccl-tests, and `ahbm bench --json`."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refused("AHBM-F210", f"it is no JSON: {error}", origin) from error
    results = data.get("results")
    if not isinstance(results, list) or len(results) > MOST_ROWS:
        raise _refused("AHBM-F210", f"JSON without a list of up to {MOST_ROWS} results", origin)
    config = data.get("config")
    found: dict[str, Any] = dict(config) if isinstance(config, dict) else {}
    ranks = data.get("ranks", data.get("devices"))
    program = " ".join(map(str, data["args"][:64])) if isinstance(data.get("args"), list) else ""
    for name, op in PROGRAMS.items():
        if re.search(rf"\b{name}\b", f"{program} {str(data.get('program', ''))[:200]}"):
            said["op"] = op
    if isinstance(found.get("collective"), str):
        said["op"] = found["collective"]
    if isinstance(ranks, list):
        hosts = {str(rank.get("host", rank.get("hostname", ""))) for rank in ranks if isinstance(rank, dict)}
        said["ranks"], said["nodes"] = str(len(ranks)), str(max(len(hosts), 1))
        first = ranks[0] if ranks and isinstance(ranks[0], dict) else {}
        said["accelerator"] = str(first.get("device_name", first.get("name", "")))
    for number, each in enumerate(results, 1):
        if not isinstance(each, dict) or "error" in each:
            continue
        report = each.get("report")
        if isinstance(report, dict) and isinstance(report.get("ranks"), int):
            said["ranks"] = str(report["ranks"])
        ways = [each.get(way) for way in ("out_of_place", "in_place")]
        times = [way.get("time") for way in ways if isinstance(way, dict) and way.get("time") is not None]
        yield _row(each.get("size"), times, origin, number, "result")


def _row(size: object, times: list[Any], origin: str, number: int, what: str = "") -> Row:
    """The quicker of both ways counts: what is slower was disturbed."""
    line = None if what else number
    prefix = f"{what} {number}: " if what else ""
    try:
        nbytes, us = int(str(size)), [float(time) for time in times]
    except ValueError as error:
        raise _refused("AHBM-F211", f"{prefix}{error}", origin, line=line) from error
    if not 0 < nbytes <= LARGEST:
        raise _refused("AHBM-F211", f"{prefix}{nbytes} bytes are no size", origin, line=line)
    if not us or not all(isfinite(time) and 0 < time <= SLOWEST_US for time in us):
        told = ", ".join(map(str, us)) or "none"
        raise _refused("AHBM-F211", f"{prefix}times of {nbytes} bytes that cannot be: {told} us", origin, line=line)
    return Row(nbytes, min(us), number)


def _whole(text: str, what: str, origin: str, least: int, most: int) -> int:
    if not re.fullmatch(r"\d{1,9}", text) or not least <= int(text) <= most:
        raise _refused("AHBM-F212", f"{what}: {text[:60]!r} is no number of {least} to {most}", origin)
    return int(text)


def _refused(code: str, message: str, origin: str, hint: str | None = None, line: int | None = None) -> FormatError:
    place = origin if line is None else f"{origin}:{line}"
    return FormatError(code, message, sites=(Site("table", place),), hint=hint)
