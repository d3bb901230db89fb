"""The rows of cases in a folder: parts that are written once and never changed, so that folders can be shared, and
merged by copying their parts.

`DIR/space.json` says what ran last, `DIR/parts/*` have the rows: Parquet with pyarrow (the extra `sweep`), else a row
of JSON in each line. The name of a part is the digest of its keys.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm._core import Machine
from ahbm.base.load import load_text
from ahbm.base.optional import needed
from ahbm.base.store import make_folders, store, writing
from ahbm.errors import ConfigError, UnsupportedError
from ahbm.runs.report import Report
from ahbm.table.build import build
from ahbm.table.cases import Case, Refused
from ahbm.table.columns import MEASURED, STORED
from ahbm.table.processes import LOST
from ahbm.table.rows import Rows

NAMES = tuple(column.name for column in STORED)
Row = tuple[Any, ...]
"""Values of `STORED`."""

INTERNAL = "AHBM-Z001"
CELL = "cell"
"""The column of what a row was made of, where somebody wants more of it than `STORED`; see `ahbm.table.kept`."""
FORMAT = 1
"""Of a store."""
NO_PROOF = (LOST, INTERNAL)
"""Codes of rows that may be others on another day: their cases run again."""
KINDS = {**{column.name: column.kind for column in STORED}, "key": str, "space": str, "at": int, CELL: str}
"""What each column holds but those of overrides. Four only a store has: the identity of the row, the first digits of
the space that it was run for, its position there, and `CELL`."""
WORDS = [*(column.name for column in STORED if column.few), "space"]
"""Columns of few different texts, which are not read one by one."""
PIECE = 2048
"""Rows of a part that are read together: of a few, not all are."""
COMPACTED = 200_000
"""Rows of a part that `compact` writes."""


def pyarrow(by: str = "") -> Any:
    """pyarrow and its Parquet, or None where it is not installed.

    Raises UnsupportedError (AHBM-U145) instead where it is needed `by` something.
    """
    try:
        needed("pyarrow.parquet", f"pyarrow is not installed: {by} needs it", "pip install ahbm[sweep]")
        return import_module("pyarrow")
    except UnsupportedError:
        if by:
            raise
        return None


class Store:
    """The folder of a sweep."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._parts = self.folder / "parts"

    def begin(self, space: Mapping[str, Any]) -> str:
        """Makes the folder, writes what runs, plain values, and returns their digest, 16 hex digits.

        Raises ConfigError (AHBM-C141) where it cannot be written.
        """
        text = json.dumps(space, sort_keys=True)
        digest = hashlib.sha256(f"{FORMAT} {text}".encode()).hexdigest()[:16]
        about = {"format": FORMAT, "ahbm": build(), "digest": digest, "space": space}
        with writing(self.folder, "AHBM-C141"):
            make_folders(self._parts)
            store({self.folder / "space.json": (json.dumps(about, indent=2) + "\n").encode()})
        return digest

    def proofs(self) -> dict[str, tuple[int | None, str | None]]:
        """The keys of all rows but those that may be others on another day, each with the row's `wrong` and `code`."""
        if not self._parts.is_dir():
            return {}
        found = self.read(("key", "wrong", "code"))
        judged = zip(found.column("wrong"), found.column("code"), strict=True)
        return {key: proof for key, proof in zip(found.column("key"), judged, strict=True) if proof[1] not in NO_PROOF}

    def add(
        self,
        space: str,
        cases: Sequence[Case],
        rows: Sequence[Row],
        kinds: Mapping[str, str],
        cells: Sequence[str] = (),
    ) -> Path:
        """Writes the rows of some cases as one part, whole or not at all, and returns its path. `kinds`: the type of
        each column of overrides, "int64", "double" or "string". `cells`: the values of `CELL`, of all rows or of none.

        Raises ConfigError (AHBM-C141) where it cannot be written.
        """
        columns: dict[str, list[Any]] = {"key": [case.key for case in cases]}
        columns |= dict(zip(NAMES, map(list, zip(*rows, strict=True)), strict=True))
        columns |= {name: [_as(kind, case.sweep.varied.get(name)) for case in cases] for name, kind in kinds.items()}
        columns |= {"space": [space] * len(cases), "at": [case.at for case in cases]}
        columns |= {CELL: list(cells)} if cells else {}
        return self._write(columns, kinds)

    def cells(self, wanted: set[str]) -> dict[str, str]:
        """By key, `CELL` of the rows of some keys that have it; little else is read."""
        at = [number for number, key in enumerate(self.read(("key",)).column("key")) if key in wanted]
        try:
            found = self.read(("key", CELL), np.array(at, dtype=np.int64))
        except ConfigError as error:
            if error.code == "AHBM-C187":
                return {}
            raise
        return {key: cell for key, cell in zip(*map(found.column, found.columns), strict=True) if cell is not None}

    def _write(self, columns: Mapping[str, list[Any]], kinds: Mapping[str, str]) -> Path:
        name = hashlib.sha256("\n".join(sorted(columns["key"])).encode()).hexdigest()[:24]
        arrow = pyarrow()
        if arrow is None:
            rows = zip(*columns.values(), strict=True)
            lines = (json.dumps(dict(zip(columns, row, strict=True))) for row in rows)
            return self._put(f"{name}.jsonl", "".join(f"{line}\n" for line in lines).encode())
        schema = arrow.schema([(name, _type(arrow, name, kinds)) for name in columns])
        return self._put(f"{name}.parquet", _parquet(arrow.table(dict(columns), schema=schema)))

    def _put(self, name: str, content: bytes) -> Path:
        path = self._parts / name
        with writing(path, "AHBM-C141"):
            store({path: content})
        return path

    def parts(self) -> list[Path]:
        """The parts. Raises ConfigError (AHBM-C186) for a folder without any."""
        if not self._parts.is_dir():
            hint = "ahbm sweep SPACE.yaml -o DIR makes one"
            raise ConfigError("AHBM-C186", f"{self.folder} holds no sweep", hint=hint)
        return sorted(path for path in self._parts.iterdir() if path.suffix in (".parquet", ".jsonl"))

    def read(self, names: Sequence[str] | None = None, rows: NDArray[np.int64] | None = None) -> Rows:
        """All rows, or some of their columns or of them, in the order of the parts; where parts differ in columns, with
        all.

        Raises ConfigError: AHBM-C186 for what cannot be read, C187 for columns that there are not; UnsupportedError
        (AHBM-U145) for Parquet where pyarrow is not installed.
        """
        parts = self.parts()
        lines = [path for path in parts if path.suffix == ".jsonl"]
        tables = [path for path in parts if path.suffix == ".parquet"]
        if not tables:
            found = [row for path in lines for row in _lines(path)]
            known = tuple(dict.fromkeys(name for row in found for name in row)) or ("key", *NAMES, "space", "at")
            chosen = known if names is None else tuple(names)
            columns = Rows(known, {name: [row.get(name) for row in found] for name in known})
            columns.refuse_unknown(chosen)
            columns = Rows(chosen, {name: columns.column(name) for name in chosen})
            return columns if rows is None else columns.at(rows)
        arrow = pyarrow(f"{tables[0]}")
        if rows is None:
            return _columns(_united(arrow, [_part(arrow, path, names) for path in (*tables, *lines)], names))
        wanted, places = np.unique(rows, return_inverse=True)
        found, start = [], 0
        for path in (*tables, *lines):
            table, count = _few(arrow, path, names, wanted[wanted >= start] - start)
            found.append(table)
            start += count
        return _columns(_united(arrow, found, names).take(places))

    def rows(self) -> Rows:
        """One row for each key, in the order of the spaces: that of `space.json` first. What is proof goes before what
        is not. Rows of other builds than the one that ran last are there where it has not run their case. They have all
        columns but `CELL`."""
        return self._each().without(CELL)

    def _each(self) -> Rows:
        found = self.read()
        return found.at(self._order(found))

    def chosen(self, names: Sequence[str], choose: Callable[[Rows, NDArray[np.float64]], NDArray[np.int64]]) -> Rows:
        """The rows that `choose` picks by the columns `names` alone, of all columns and in its order; little else of
        other rows is read. `choose` is given rows in any order, and a number for each that tells its place."""
        few = self.read(tuple(dict.fromkeys([*names, "code", "space", "at"])))
        at = few.numbers("at")
        if len(few.classes("space")[1]) == 1 and _proof(few).all() and _all_differ(at):
            # One space, nothing twice: the rows are what they are, in whatever order they are read.
            return self.read(rows=choose(few, at)).without(CELL)
        few = self.read(tuple(dict.fromkeys([*names, "key", "code", "space", "at", "version"])))
        order = self._order(few)
        chosen = order[choose(few.at(order), np.arange(len(order), dtype=np.float64))]
        return self.read(rows=chosen).without(CELL)

    def _order(self, found: Rows) -> NDArray[np.int64]:
        """The positions of `rows` in what `read` gives."""
        spaces, names = found.classes("space")
        own, build = (self._about(name) for name in ("digest", "ahbm"))
        rank = np.argsort(np.argsort([f"{name != own} {name}" for name in names]))[spaces]
        builds, versions = found.classes("version")
        other = np.array([version != build for version in versions], dtype=bool)[builds]
        at, (keys, _) = found.numbers("at"), found.classes("key")
        order = np.lexsort((at, rank, ~_proof(found)))
        _, first = np.unique(keys[order], return_index=True)
        kept = order[first]
        kept = kept[np.lexsort((at[kept], rank[kept]))]
        # A case that this build has run is not what others made of it.
        place = rank[kept] * (at.max(initial=0) + 1) + at[kept]
        return np.asarray(kept[~(other[kept] & np.isin(place, place[~other[kept]]))], dtype=np.int64)

    def _about(self, name: str) -> str:
        try:
            return str(json.loads(load_text(self.folder / "space.json"))[name])
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def compact(self) -> tuple[int, int]:
        """Writes all rows, each key once, as few parts, and removes those that they were in. Returns the number of
        parts before and after. Raises ConfigError (AHBM-C141, C186)."""
        before = self.parts()
        rows = self._each()
        kinds = {name: "" for name in rows.columns if name not in KINDS}
        written = set()
        for start in range(0, len(rows), COMPACTED):
            some = rows.at(np.arange(start, min(start + COMPACTED, len(rows))))
            columns = {name: some.column(name) for name in some.columns}
            own = {name: kind_of(columns[name]) for name in kinds}
            written.add(self._write(columns, own))
        for path in before:
            if path not in written:
                path.unlink(missing_ok=True)
        return len(before), len(written)


def row_of(case: Case, cell: Report | Refused, machine: Callable[[], Machine]) -> Row:
    """The row of what a case gave on a machine, which is there where it ran."""
    if isinstance(cell, Refused):
        return refusal(case, cell.error.code, cell.error.message, cell.algorithm)
    measured = (column.value(cell) for column in MEASURED)
    return (*measured, case.seed, None, *_links(machine()), cell.error.note, build(), None, None)


def refusal(case: Case, code: str, message: str, algorithm: str | None = None) -> Row:
    """The row of a case that did not run, by an algorithm."""
    sweep, found = case.sweep, dict.fromkeys(NAMES)
    found |= {"algorithm": algorithm or case.algorithm or "-", "machine": sweep.machine, "version": build()}
    found |= {"seed": case.seed, "job": sweep.job, "code": code, "message": message}
    if sweep.job is None:
        found |= {"collective": sweep.collective, "dtype": sweep.dtype, "bytes": case.nbytes}
    return tuple(found.values())


@lru_cache(8)
def _links(machine: Machine) -> tuple[int, float | None]:
    """Links between SIPs, and the GB/s of one of them."""
    gbs = dict(machine.parameters).get("system.sips.link.bandwidth_gbs", "").removesuffix("GB/s")
    return len(machine.links_between_sips()), float(gbs) if gbs else None


def _proof(rows: Rows) -> NDArray[np.bool_]:
    """Which rows will be the same on every day."""
    codes, values = rows.classes("code")
    return np.asarray(np.array([value not in NO_PROOF for value in values], dtype=bool)[codes], dtype=bool)


def _all_differ(numbers: NDArray[np.float64]) -> bool:
    """Whether no two numbers are equal; of positions, without sorting them."""
    if not len(numbers) or numbers.min() < 0 or numbers.max() >= 4 * len(numbers):
        return len(np.unique(numbers)) == len(numbers)
    return bool(np.bincount(numbers.astype(np.int64)).max() == 1)


def kind_of(values: Sequence[Any]) -> str:
    """The type of a column: "int64" or "double" where all values are numbers, else "string"."""
    found = [value for value in values if value is not None]
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in found):
        return "string"
    return "int64" if all(isinstance(value, int) for value in found) else "double"


def _as(kind: str, value: Any) -> Any:
    if value is None or kind == "int64":
        return value
    return float(value) if kind == "double" else value if isinstance(value, str) else json.dumps(value)


def _type(arrow: Any, name: str, kinds: Mapping[str, str]) -> Any:
    kind = kinds.get(name) or {int: "int64", float: "double", str: "string"}[KINDS[name]]
    return {"int64": arrow.int64(), "double": arrow.float64(), "string": arrow.string()}[kind]


def _parquet(table: Any) -> bytes:
    out = io.BytesIO()
    # Equal rows are equal bytes; keys do not compress.
    parquet = import_module("pyarrow.parquet")
    packed = [name for name in table.column_names if name != "key"]
    parquet.write_table(
        table, out, compression="zstd", use_dictionary=packed, write_statistics=False, row_group_size=PIECE
    )
    return out.getvalue()


def _columns(table: Any) -> Rows:
    return Rows(table.column_names, {name: table.column(name) for name in table.column_names})


@contextmanager
def _opened(arrow: Any, path: Path) -> Iterator[Any]:
    """A part of Parquet. Raises ConfigError (AHBM-C186) for what is none."""
    try:
        with path.open("rb") as file:
            found = import_module("pyarrow.parquet").ParquetFile(file, read_dictionary=WORDS)
            if "key" not in found.schema_arrow.names:
                raise ValueError("it has no keys")
            yield found
    except (OSError, ValueError, arrow.ArrowException) as error:
        raise ConfigError("AHBM-C186", f"{path} is no part of a sweep: {error}") from error


def _part(arrow: Any, path: Path, names: Sequence[str] | None) -> Any:
    """A part, with those of some columns that it has."""
    if path.suffix == ".jsonl":
        table = _table(arrow, list(_lines(path)))
        return table if names is None else table.select([name for name in names if name in table.column_names])
    with _opened(arrow, path) as file:
        has = file.schema_arrow.names
        return file.read(None if names is None else [name for name in names if name in has])


def _few(arrow: Any, path: Path, names: Sequence[str] | None, rows: NDArray[np.int64]) -> tuple[Any, int]:
    """Those of some ascending rows that a part has, of which only the pieces that have them are read; and the number of
    its rows."""
    if path.suffix == ".jsonl":
        table = _part(arrow, path, names)
        return table.take(rows[rows < len(table)]), len(table)
    with _opened(arrow, path) as file:
        ends = np.cumsum([file.metadata.row_group(piece).num_rows for piece in range(file.num_row_groups)])
        total = int(ends[-1]) if len(ends) else 0
        here = rows[rows < total]
        pieces, places = np.unique(np.searchsorted(ends, here, "right"), return_inverse=True)
        # Where the pieces begin, in the part and among those that are read.
        lengths = np.diff(ends, prepend=0)[pieces]
        table = file.read_row_groups(pieces.tolist())
        table = table.take(here - (ends[pieces] - lengths)[places] + (np.cumsum(lengths) - lengths)[places])
        return table if names is None else table.select([name for name in names if name in table.column_names]), total


def _table(arrow: Any, rows: list[dict[str, Any]]) -> Any:
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    kinds = {name: kind_of(columns[name]) for name in names if name not in KINDS}
    return arrow.table(columns, schema=arrow.schema([(name, _type(arrow, name, kinds)) for name in names]))


def _united(arrow: Any, tables: Sequence[Any], names: Sequence[str] | None) -> Any:
    """The tables below each other; a column that is text in one is text in all."""
    if names is not None:
        known = dict.fromkeys(name for table in tables for name in table.column_names)
        Rows(tuple(known), {}).refuse_unknown(names)
    kinds: dict[str, set[Any]] = {}
    for table in tables:
        for name, kind in zip(table.schema.names, table.schema.types, strict=True):
            kinds.setdefault(name, set()).add(kind)
    text = arrow.string()
    mixed = {name for name, found in kinds.items() if len(found) > 1 and any(map(_is_text, found))}
    if mixed:
        made = []
        for table in tables:
            fields = [arrow.field(f.name, text if f.name in mixed else f.type) for f in table.schema]
            made.append(table.cast(arrow.schema(fields)))
        tables = made
    table = arrow.concat_tables(tables, promote_options="permissive")
    return table.select([name for name in names if name in table.column_names]) if names is not None else table


def _is_text(kind: Any) -> bool:
    return str(getattr(kind, "value_type", kind)) == "string"


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                if not isinstance(row, dict) or "key" not in row:
                    raise ValueError("a line without a key")
                yield row
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError("AHBM-C186", f"{path} is no part of a sweep: {error}") from error
