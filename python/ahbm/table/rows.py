"""Rows of plain values under named columns, what is asked of them, and what they are written as."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ahbm.base.arguments import checked, shown
from ahbm.base.optional import needed
from ahbm.base.store import store, writing
from ahbm.errors import ConfigError
from ahbm.table.columns import unit_of

_Number = TypeVar("_Number", np.float64, np.int64)


class Rows:
    """A sequence of rows, each a dict of plain values with the same columns; `None` stands where a row has no value.

    They are kept column by column: a million of them are a few arrays.
    """

    computed: frozenset[str] = frozenset()
    """The columns that `cost` of a space computes of others."""

    def __init__(self, columns: Sequence[str], values: Sequence[Sequence[Any]] | Mapping[str, Any]) -> None:
        """values: per row, the value of each column; or the columns by name, lists or arrays of pyarrow."""
        self.columns = tuple(columns)
        if not isinstance(values, Mapping):
            lists = list(map(list, zip(*values, strict=True))) or [[] for _ in self.columns]
            values = dict(zip(self.columns, lists, strict=True))
        self._by_name = values

    @checked
    def unit(self, name: str) -> str:
        """The unit of a column: "ns", "GB/s", "B", "%"; empty where it has none. Raises ConfigError (AHBM-C187)."""
        self.refuse_unknown([name])
        return unit_of(name)

    @property
    def values(self) -> tuple[tuple[Any, ...], ...]:
        """Per row, the value of each column."""
        return tuple(zip(*map(self.column, self.columns), strict=True))

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """The rows as dicts."""
        return tuple(self)

    def column(self, name: str) -> list[Any]:
        """The values of a column. Raises ConfigError (AHBM-C187) where there is none of that name."""
        self.refuse_unknown([name])
        column = self._by_name[name]
        return column if isinstance(column, list) else list(column.to_pylist())

    @checked
    def refuse_unknown(self, names: Sequence[str]) -> None:
        """Raises ConfigError (AHBM-C187) for a name of no column."""
        for name in names:
            if not isinstance(name, str) or name not in self.columns:
                columns = ", ".join(self.columns)
                raise ConfigError("AHBM-C187", f"the rows have no column {shown(name)}", hint=f"one of {columns}")

    def _facts(self) -> tuple[object, ...]:
        """What equal rows have in common."""
        return self.columns, self.values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and type(self) is type(other) and self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._by_name[self.columns[0]]) if self.columns else 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.columns, values, strict=True)) for values in self.values)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Rows: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | Rows:
        """A row, or of a slice those rows. Raises IndexError for a row that there is not."""
        places = np.arange(len(self))[index]
        if isinstance(index, slice):
            return self.at(places)
        return self.take([int(places)])[0]

    @checked
    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column as numbers, NaN where a row has none. Raises ConfigError (AHBM-C187) for other columns."""
        self.refuse_unknown([name])
        column = self._by_name[name]
        try:
            if isinstance(column, list):
                found = np.array([np.nan if value is None else float(value) for value in column], dtype=np.float64)
            else:
                found = _joined(column.cast("float64").chunks, np.float64, np.nan)
        except (TypeError, ValueError) as error:
            raise ConfigError("AHBM-C187", f"the column {name} does not hold numbers") from error
        return np.asarray(found, dtype=np.float64)

    @checked
    def classes(self, name: str) -> tuple[NDArray[np.int64], list[Any]]:
        """A column as numbers of its different values, and the values."""
        self.refuse_unknown([name])
        column = self._by_name[name]
        if isinstance(column, list):
            known: dict[Any, int] = {}
            return np.array([known.setdefault(value, len(known)) for value in column], dtype=np.int64), list(known)
        coded = column if hasattr(column.type, "value_type") else column.dictionary_encode()
        chunks = coded.unify_dictionaries().chunks
        found = chunks[0].dictionary.to_pylist() if chunks else []
        # None is a value like others, and the last.
        codes = [chunk.indices.cast("int64") for chunk in chunks]
        return _joined(codes, np.int64, len(found)), [*found, *([None] if column.null_count else [])]

    @checked
    def take(self, rows: NDArray[np.int64] | Sequence[int]) -> list[dict[str, Any]]:
        """Some rows, as dicts."""
        found, places = {}, np.asarray(rows, dtype=np.int64)
        for name in self.columns:
            column = self._by_name[name]
            picked = [column[row] for row in rows] if isinstance(column, list) else column.take(places).to_pylist()
            found[name] = picked
        return [dict(zip(self.columns, values, strict=True)) for values in zip(*found.values(), strict=True)]

    @checked
    def at(self, rows: NDArray[np.int64]) -> Rows:
        """Some rows, in this order."""
        found: dict[str, Any] = {}
        for name in self.columns:
            column = self._by_name[name]
            found[name] = [column[row] for row in rows] if isinstance(column, list) else column.take(rows)
        some = Rows(self.columns, found)
        some.computed = self.computed
        return some

    @checked
    def without(self, name: str) -> Rows:
        """All rows, without a column that they may have."""
        left = [one for one in self.columns if one != name]
        return Rows(left, {one: self._by_name[one] for one in left})

    def to_arrow(self) -> Any:
        """A pyarrow.Table with `columns`, the units in the metadata of its fields. Raises UnsupportedError (AHBM-U145)
        where pyarrow is not installed."""
        arrow = _package("pyarrow")
        arrays = [arrow.array(self.column(name)) for name in self.columns]
        fields = zip(self.columns, arrays, strict=True)
        described = [arrow.field(name, array.type, metadata={"unit": unit_of(name)}) for name, array in fields]
        return arrow.table(arrays, schema=arrow.schema(described))

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with `columns`. Raises UnsupportedError (AHBM-U145) where pandas is not installed."""
        return _package("pandas").DataFrame(list(self.values), columns=list(self.columns))

    def to_polars(self) -> Any:
        """A polars.DataFrame with `columns`. Raises UnsupportedError (AHBM-U145) where polars is not installed."""
        values = {name: self.column(name) for name in self.columns}
        return _package("polars").DataFrame(values, strict=False)

    def csv(self) -> str:
        """The rows below a line of column names; a value that a row does not have is empty."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.values)
        return out.getvalue()

    @checked
    def to_csv(self, path: str | Path) -> Path:
        """Writes `csv`. Raises ConfigError (AHBM-C141) for a file that cannot be written."""
        return _stored(path, self.csv())

    @checked
    def to_jsonl(self, path: str | Path) -> Path:
        """Writes each row as a line of JSON. Raises ConfigError (AHBM-C141) for a file that cannot be written."""
        return _stored(path, "".join(f"{json.dumps(row)}\n" for row in self))

    def __str__(self) -> str:
        names = self._shown()
        lines = [names, *([self._cell(row[name]) for name in names] for row in self)]
        widths = [max(len(line[at]) for line in lines) for at in range(len(names))]
        return "\n".join("  ".join(map(str.rjust, line, widths)).rstrip() for line in lines)

    def _shown(self) -> list[str]:
        """The columns for people."""
        return list(self.columns)

    def _cell(self, value: object) -> str:
        return "" if value is None else f"{value:,.2f}" if isinstance(value, float) else str(value)


def _package(name: str) -> Any:
    return needed(name, f"{name} is not installed", f"pip install {name}; or to_csv, which needs nothing")


def _stored(path: str | Path, content: str) -> Path:
    target = Path(path)
    with writing(target, "AHBM-C141"):
        store({target: content.encode()})
    return target


def _joined(chunks: Sequence[Any], kind: type[_Number], missing: float) -> NDArray[_Number]:
    """Arrays of pyarrow as one of NumPy, with `missing` for nulls. By their buffers: `to_numpy` and scalars import
    pandas where it is installed, which takes half a second."""
    found = [np.zeros(0, dtype=kind)]
    for chunk in chunks:
        known, values = chunk.buffers()
        part = slice(chunk.offset, chunk.offset + len(chunk))
        numbers = np.frombuffer(values, kind)[part] if len(chunk) else found[0]
        if chunk.null_count:
            valid = np.unpackbits(np.frombuffer(known, np.uint8), bitorder="little")[part].astype(bool)
            numbers = np.where(valid, numbers, kind(missing))
        found.append(numbers)
    return np.concatenate(found)
