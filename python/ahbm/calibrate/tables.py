"""Tables of measured collectives: the text and JSON of nccl-tests and rccl-tests, the text of the OSU
micro-benchmarks and the Intel MPI Benchmarks, and CSV.

What is read comes from strangers.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ahbm.base import foreign
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.load import load_log
from ahbm.base.yaml_source import did_you_mean
from ahbm.calibrate.readers import documents, imb, osu, rccl, text
from ahbm.calibrate.readers.documents import printed
from ahbm.calibrate.readers.size import MOST_ROWS, WHAT, Size, refused
from ahbm.errors import FormatError

Floats = NDArray[np.float64]

MOST_BYTES, MOST_RANKS = 1 << 22, 1 << 20
LARGEST = 1 << 50
"""Bytes of one rank's array."""
SLOWEST_US = 1e9
SPELLED = {"alltoall": "all_to_all", "allreduce": "all_reduce", "allgather": "all_gather"} | {
    "reducescatter": "reduce_scatter", "sendrecv": "send_recv"
}  # fmt: skip


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

    def by(self, ratios: Floats) -> Table:
        """Its times divided by so much, row by row."""
        rows = zip(self.rows, ratios.tolist(), strict=True)
        return replace(self, rows=tuple(replace(row, us=row.us / ratio) for row, ratio in rows))


def interpolated(rows: Sequence[Row], sizes: Sequence[int]) -> Floats:
    """us of sizes on the lines between rows, in logarithms; the first and last lines go on."""
    n, us = (np.log([getattr(row, name) for row in rows]) for name in ("bytes", "us"))
    at = np.log(np.asarray(sizes, np.float64))
    if len(n) < 2:
        return np.full(len(at), float(np.exp(us[0])))
    left = np.clip(np.searchsorted(n, at) - 1, 0, len(n) - 2)
    slope = (us[left + 1] - us[left]) / (n[left + 1] - n[left])
    return np.asarray(np.exp(us[left] + slope * (at - n[left])), np.float64)


def read(path: str | Path, collective: str | None = None, ranks: int | None = None, nodes: int | None = None) -> Table:
    """The table in a file. `collective`, `ranks` and `nodes` stand in for what its head does not say.

    Times of data that the program found wrong do not count; a note says so. Raises FormatError: AHBM-F210 for no such
    table, F211 for rows that cannot be, F212 for what nobody says.
    """
    origin = str(path)
    try:
        content = load_log(path, MOST_BYTES)
    except OSError as error:
        raise FormatError("AHBM-F210", f"{origin} cannot be read: {error.strerror or error}") from error
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    content = printed(foreign.ESCAPES.sub("", content))
    said: dict[str, str] = {}
    body = content.lstrip()
    wanted = None if collective is None else _spelled(collective)
    if re.match(r"\{|\[\s*[\[\]{]", body):  # no line of MPI, which names a rank: [1,0]<stdout>:
        found = documents.sizes(content, origin, said)
    elif rccl.is_csv(body):
        found = rccl.results(rccl.rows(content, origin), origin, said)
    elif osu.is_log(content):
        found = osu.sizes(content.split("\n"), origin, said, wanted)
    elif imb.is_log(content):
        found = imb.sizes(content.split("\n"), origin, said, wanted, ranks)
    else:
        found = text.sizes(content.split("\n"), origin, said, wanted)
    sizes = list(itertools.islice(found, MOST_ROWS + 1))
    if len(sizes) > MOST_ROWS:
        raise refused("AHBM-F210", f"more than {MOST_ROWS} rows", origin, line=sizes[-1].line)
    given = {"op": collective, "ranks": ranks, "nodes": nodes}
    for key, value in given.items():
        if value is not None:
            if _spelled(said.get(key, str(value))) != _spelled(str(value)):
                raise refused("AHBM-F212", f"the table says {key} {said[key]}, and {value} is given", origin)
            said[key] = str(value)
    return _table(Path(path).name, digest, sizes, said, origin)


def _table(name: str, digest: str, sizes: list[Size], said: Mapping[str, str], origin: str) -> Table:
    if not sizes:
        raise refused("AHBM-F210", "it has no rows of a table", origin, WHAT)
    for key, option in (("op", "--collective"), ("ranks", "--ranks")):
        if key not in said:
            raise refused("AHBM-F212", f"the table does not say {key}", origin, f"# {key}: ..., or {option}")
    op = _spelled(said["op"])
    if op not in COLLECTIVES:
        raise refused("AHBM-F212", f"unknown collective {op[:60]!r}", origin, did_you_mean(op[:60], COLLECTIVES))
    if said["ranks"] == "1":
        message = "each process measured alone: the table is of one rank"
        raise refused("AHBM-F212", message, origin, "build nccl-tests with MPI=1, or start it with -g")
    ranks = _whole(said["ranks"], "ranks", origin, 2, MOST_RANKS)
    nodes = _whole(said.get("nodes", "1"), "nodes", origin, 1, ranks)
    if ranks % nodes:
        raise refused("AHBM-F212", f"{ranks} ranks are no whole number on each of {nodes} nodes", origin)
    # rccl-tests counts what a rank receives; a row counts the array that is shared out.
    times = ranks if said.get("counts") == "received" and op in ("reduce_scatter", "scatter") else 1
    empty = [each for each in sizes if str(each.bytes).strip() == "0"]
    sizes = [each for each in sizes if each not in empty]
    if said.get("counts") == "share" and op in ("all_gather", "all_to_all", "gather", "scatter"):
        times = ranks
    rows = [_row(each, times, origin) for each in sizes]
    for (of, before), (other, after) in itertools.pairwise(zip([each.of for each in sizes], rows, strict=True)):
        if of == other and after.bytes <= before.bytes:
            message = f"{after.bytes} bytes follow {before.bytes}: sizes grow"
            raise refused("AHBM-F211", message, origin, line=after.line)
    notes = [*_failed(name, sizes, rows), *([said["noted"]] if "noted" in said else [])]
    tables = list(dict.fromkeys(each.of for each in sizes))
    if len(tables) > 1:
        rows = _joined(rows)
        listed = ", ".join(tables[:6]) + (f" and {len(tables) - 6} more" if tables[6:] else "")
        notes.append(f"{name} has {len(tables)} tables ({listed}): of each size the quickest time counts")
    if empty:
        notes.append(f"{name}:{empty[0].line}: rows of 0 bytes, where ranks have no element each, do not count")
    if "nodes" not in said:
        notes.append(f"{name} does not say on how many nodes its {ranks} ranks were: one is supposed (--nodes)")
    right = tuple(row for row in rows if row.measured)
    if not right:
        why = notes[0].partition(": ")[2] if sizes else "all rows are of 0 bytes"
        raise refused("AHBM-F211", why, origin, line=(sizes or empty)[0].line)
    return Table(name, digest, op, ranks, nodes, said.get("accelerator", "")[:60], right, tuple(notes))


def _joined(rows: list[Row]) -> list[Row]:
    """Rows of several tables by their sizes, of each the quickest one that counts."""
    found: dict[int, Row] = {}
    for row in rows:
        known = found.get(row.bytes)
        if known is None or (not known.measured, known.us) > (not row.measured, row.us):
            found[row.bytes] = row
    return [found[nbytes] for nbytes in sorted(found)]


def _failed(name: str, sizes: list[Size], rows: list[Row]) -> Iterator[str]:
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


def _row(size: Size, times: int, origin: str) -> Row:
    """The quicker of both ways counts: what is slower was disturbed. Without right data, none does."""
    if not re.fullmatch(r"\s*\d{1,18}\s*", str(size.bytes)):
        hint = "1024, without a unit"
        raise refused("AHBM-F211", f"{str(size.bytes)[:40]!r} is no whole number of bytes", origin, hint, size.line)
    nbytes, us = int(str(size.bytes)) * times, []
    for way in size.ways:
        try:
            us.append(float(str(way.us)))
        except ValueError as error:
            message = f"{str(way.us)[:40]!r} stands where the time of {nbytes} bytes should, in us"
            raise refused("AHBM-F211", message, origin, line=size.line) from error
    if not 0 < nbytes <= LARGEST:
        raise refused("AHBM-F211", f"{nbytes} bytes are no size", origin, line=size.line)
    if not us or not all(isfinite(time) and 0 < time <= SLOWEST_US for time in us):
        stated = ", ".join(map(str, us)) or "none"
        raise refused("AHBM-F211", f"times of {nbytes} bytes that cannot be: {stated} us", origin, line=size.line)
    right = [time for time, way in zip(us, size.ways, strict=True) if not way.failed]
    return Row(nbytes, min(right or us), size.line, bool(right))


def _whole(text: str, what: str, origin: str, least: int, most: int) -> int:
    if not re.fullmatch(r"\d{1,9}", text) or not least <= int(text) <= most:
        raise refused("AHBM-F212", f"{what}: {text[:60]!r} is no number of {least} to {most}", origin)
    return int(text)
