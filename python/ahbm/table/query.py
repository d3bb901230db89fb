"""Questions to the rows of a store, answered by DuckDB from its parts as they lie there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ahbm.base.optional import needed
from ahbm.errors import ConfigError
from ahbm.table.columns import STORED
from ahbm.table.expressions import Expression
from ahbm.table.files import CELL, HIDDEN, ID, NO_PROOF, Files, columns_of, pyarrow
from ahbm.table.parts import FRESH, Part
from ahbm.table.rows import Rows

MEMORY = "640MiB"
"""That the engine takes; beyond it, what it sorts and groups lies on the disk."""
RETRIES = 5
"""Times that a question is asked again because a merge took the parts away meanwhile."""
NARROW = 2_000_000
"""Rows of which the columns that decide are read once, and kept; of more, they are read anew by every step."""
PLACE = ("file_index", "file_row_number")
"""Where a row lies."""
_Answer = TypeVar("_Answer")


def asked(store: Files, question: Callable[[Query], _Answer]) -> _Answer:
    """The answer to a question. Raises ConfigError (AHBM-C186), UnsupportedError (AHBM-U145)."""
    duckdb = needed("duckdb", "duckdb is not installed: it reads the rows of stores", "pip install ahbm[sweep]")
    for left in reversed(range(RETRIES)):
        parts = store.parts()
        try:
            return question(Query(store, parts, duckdb))
        except (duckdb.IOException, duckdb.InvalidInputException) as error:
            if left and set(parts) - set(store.parts()):
                continue
            for part in parts:
                with store.opened(part) as file:
                    file.metadata  # noqa: B018
            raise ConfigError("AHBM-C186", f"{store.folder} cannot be read: {str(error)[:400]}") from error
        except FileNotFoundError as error:
            if not left:
                raise ConfigError("AHBM-C186", f"{store.folder} cannot be read: {error}") from error
    raise AssertionError


class Query:
    """The rows of some parts of a store."""

    def __init__(self, store: Files, parts: Sequence[Part], duckdb: Any) -> None:
        self.store, self.parts, self._duckdb = store, parts, duckdb
        about = store.about()
        self.own, self._build = (str(about.get(name, "")) for name in ("digest", "ahbm"))
        folder = os.path.join(tempfile.gettempdir(), f"ahbm-{os.getpid()}")
        self._engine = duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": folder})
        for setting in ("parquet_metadata_cache = true", "preserve_insertion_order = false"):
            self.run(f"set {setting}")
        store.place.register(self._engine)
        space = about.get("space")
        self._cost = dict((space.get("cost") if isinstance(space, dict) else None) or {})
        self.computed: list[str] = []
        """The columns that the space computes of others."""
        self._types: dict[str, str] = {}
        self._types = self._described() if parts else {}
        self._read = "parts"
        self._each: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that answers have."""
        return tuple(name for name in self._types if name not in (*HIDDEN, *PLACE))

    def numeric(self, name: str) -> bool:
        """Whether a column holds numbers."""
        return self._types[name] in ("BIGINT", "DOUBLE")

    @property
    def one_space(self) -> bool:
        """Whether all rows were run for one space."""
        return len({part.space for part in self.parts}) == 1

    @property
    def order(self) -> str:
        """The order of rows: the space that ran last first."""
        return f'space <> {quoted(self.own)}, space, "at"'

    @property
    def each(self) -> str:
        """A relation of one row for each key; see `ahbm.table.store.Store.rows`."""
        if self._each is None:
            self._each = self._read if self._differ() else self._first_of_each()
        return self._each

    def narrow(self, columns: Sequence[str]) -> None:
        """Tells which columns decide, before anything is asked."""
        if sum(part.rows for part in self.parts) <= NARROW:
            read = dict.fromkeys([*(one for one in columns if one in self._types), ID, "space", "at", *PLACE])
            self.run(f"create temp table narrow as select {names(list(read))} from parts")
            self._read = "narrow"

    def table(self, text: str) -> Any:
        """The rows of a query, a table of pyarrow."""
        return self._engine.sql(text).to_arrow_table()

    def lines(self, text: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        found: list[tuple[Any, ...]] = self._engine.sql(text).fetchall()
        return found

    def run(self, text: str) -> None:
        """A statement."""
        self._engine.execute(text)

    def unconverted(self) -> type[Exception]:
        """What is raised where a text is no number."""
        found: type[Exception] = self._duckdb.ConversionException
        return found

    def all(self) -> Rows:
        """Every row, in order."""
        if not self.parts:
            return Rows(("key",), [])
        return self._rows(f"select {names(self.columns)} from {self.each} order by {self.order}")

    def _rows(self, text: str) -> Rows:
        found = columns_of(self.table(text))
        found.computed = frozenset(self.computed)
        return found

    def at(self, lying: Sequence[tuple[int, int]]) -> Rows:
        """The rows that lie somewhere, in this order; of a part, only the pieces that have them are read."""
        arrow, found = pyarrow(), dict[Any, list[Any]]()
        wanted: dict[int, list[tuple[int, int]]] = {}
        for turn, (file, row) in enumerate(lying):
            wanted.setdefault(file, []).append((row, turn))
        for file, rows in wanted.items():
            with self.store.opened(self.parts[file]) as part:
                table = _few(part, [row for row, _ in sorted(rows)])
            table = table.append_column("turn", arrow.array([turn for _, turn in sorted(rows)]))
            found.setdefault(tuple(zip(table.column_names, map(str, table.schema.types), strict=True)), []).append(
                table
            )
        pieces = []
        for number, tables in enumerate(found.values()):
            pieces.append(f"piece{number}")
            self._engine.register(pieces[-1], arrow.concat_tables(tables, promote_options="permissive"))
        if not pieces:
            return self._rows(f"select {names(self.columns)} from parts limit 0")
        have = {name for columns in found for name, _ in columns}
        # Their columns are those of all parts, whatever the few have.
        columns = (
            name_of(one)
            if one in have
            else self._costs(one)
            if one in self.computed
            else f"null::{self._types[one]} as {name_of(one)}"
            for one in self.columns
        )
        united = " union all by name ".join(f"select * from {piece}" for piece in pieces)
        return self._rows(f"select {', '.join(columns)} from ({united}) order by turn")

    def keyed(self, wanted: set[str]) -> dict[str, tuple[Any, ...]]:
        """By key, what `STORED` says of some rows."""
        if not self.parts:
            return {}
        self._engine.register("wanted", pyarrow().table({"key": sorted(wanted)}))
        text = f"select key, {names([column.name for column in STORED])} from {self.each} semi join wanted using (key)"
        return {line[0]: line[1:] for line in self.lines(text)}

    def cells(self, wanted: set[str]) -> dict[str, str]:
        """See `ahbm.table.store.Store.cells`."""
        if CELL not in self._types:
            return {}
        self._engine.register("wanted", pyarrow().table({"key": sorted(wanted)}))
        return dict(self.lines(f"select key, {CELL} from parts semi join wanted using (key) where {CELL} is not null"))

    def _scan(self, files: Sequence[str]) -> str:
        how = "file_row_number = true, hive_partitioning = false"
        return (
            f"read_parquet([{', '.join(map(quoted, files))}], {how}, union_by_name = {str(not self.one_space).lower()})"
        )

    def _file(self, part: Part) -> str:
        return self.store.place.named(f"parts/{part.name}")

    def _described(self) -> dict[str, str]:
        files = [self._file(part) for part in self.parts]
        self.run(f"create temp view lying_ as select *, file_index from {self._scan(files)}")
        self._types = {row[0]: row[1] for row in self.lines("describe lying_")}
        self.computed = [name for name in self._cost if name not in self._types]
        self.run(f"create temp view parts as select {', '.join(['*', *map(self._costs, self.computed)])} from lying_")
        return {**self._types, **dict.fromkeys(self.computed, "DOUBLE")}

    def _costs(self, name: str) -> str:
        def column(of: str) -> str:
            return name_of(of) if of in self._types and self.numeric(of) else "null"

        return f"{Expression.of(name, self._cost[name]).sql(column)} as {name_of(name)}"

    def _differ(self) -> bool:
        """Whether the parts are one build's, all proof, with no key twice."""
        if len({part.build for part in self.parts}) > 1 or any(part.unproved for part in self.parts):
            return False
        if len({part.merge for part in self.parts}) == 1 and self.parts[0].merge != FRESH:
            return True
        return self.lines(f"select count(*) = count(distinct {ID}) from {self._read}") == [(True,)]

    def _first_of_each(self) -> str:
        unproved = ", ".join(map(quoted, NO_PROOF))
        own = self._build
        self.run(
            f'create temp table ranked as select {", ".join(PLACE)}, space, "at", version from parts '
            "qualify row_number() over (partition by key order by "
            f"coalesce(code in ({unproved}), false), {self.order}, {', '.join(PLACE)}) = 1"
        )
        # A case that this build has run is not what others made of it.
        self.run(
            f"create temp table first as select {', '.join(PLACE)} from ranked where version = {quoted(own)} or "
            f'(space, "at") not in (select (space, "at") from ranked where version = {quoted(own)})'
        )
        self.run(f"create temp view each_ as select * from {self._read} semi join first using ({', '.join(PLACE)})")
        return "each_"


def _few(file: Any, rows: Sequence[int]) -> Any:
    """Some ascending rows of a part."""
    ends = np.cumsum([file.metadata.row_group(piece).num_rows for piece in range(file.num_row_groups)])
    pieces, places = np.unique(np.searchsorted(ends, rows, "right"), return_inverse=True)
    # Where the pieces begin, in the part and among those that are read.
    lengths = np.diff(ends, prepend=0)[pieces]
    starts = np.cumsum(lengths) - lengths
    return file.read_row_groups(pieces.tolist()).take(np.asarray(rows) - (ends[pieces] - lengths - starts)[places])


def quoted(text: str) -> str:
    """A text of SQL."""
    return "'" + text.replace("'", "''") + "'"


def name_of(column: str) -> str:
    """A column of SQL."""
    return '"' + column.replace('"', '""') + '"'


def names(columns: Sequence[str]) -> str:
    """Columns of SQL."""
    return ", ".join(map(name_of, columns))
