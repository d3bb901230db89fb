"""Rows of a sweep, column by column: a million of them are a few arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ahbm.errors import ConfigError
from ahbm.table.rows import Rows

_Number = TypeVar("_Number", np.float64, np.int64)


class Columns:
    """Rows of plain values, column by column. `None` stands where a row has no value."""

    def __init__(self, names: Sequence[str], columns: Mapping[str, Any]) -> None:
        self.names = tuple(names)
        self._columns = columns
        """Lists, or arrays of pyarrow."""

    def __len__(self) -> int:
        return len(self._columns[self.names[0]]) if self.names else 0

    def refuse_unknown(self, names: Sequence[str]) -> None:
        """Raises ConfigError (AHBM-C187) for a name of no column."""
        for name in names:
            if name not in self.names:
                raise ConfigError(
                    "AHBM-C187", f"the rows have no column {name!r}", hint=f"one of {', '.join(self.names)}"
                )

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column as numbers, NaN where a row has none. Raises ConfigError (AHBM-C187) for other columns."""
        self.refuse_unknown([name])
        column = self._columns[name]
        try:
            if isinstance(column, list):
                found = np.array([np.nan if value is None else float(value) for value in column], dtype=np.float64)
            else:
                found = _joined(column.cast("float64").chunks, np.float64, np.nan)
        except (TypeError, ValueError) as error:
            raise ConfigError("AHBM-C187", f"the column {name} does not hold numbers") from error
        return np.asarray(found, dtype=np.float64)

    def classes(self, name: str) -> tuple[NDArray[np.int64], list[Any]]:
        """A column as numbers of its different values, and the values."""
        self.refuse_unknown([name])
        column = self._columns[name]
        if isinstance(column, list):
            known: dict[Any, int] = {}
            return np.array([known.setdefault(value, len(known)) for value in column], dtype=np.int64), list(known)
        coded = column if hasattr(column.type, "value_type") else column.dictionary_encode()
        chunks = coded.unify_dictionaries().chunks
        found = chunks[0].dictionary.to_pylist() if chunks else []
        # None is a value like others, and the last.
        codes = [chunk.indices.cast("int64") for chunk in chunks]
        return _joined(codes, np.int64, len(found)), [*found, *([None] if column.null_count else [])]

    def take(self, rows: NDArray[np.int64] | Sequence[int]) -> list[dict[str, Any]]:
        """Some rows, as dicts."""
        found, places = {}, np.asarray(rows, dtype=np.int64)
        for name in self.names:
            column = self._columns[name]
            picked = [column[row] for row in rows] if isinstance(column, list) else column.take(places).to_pylist()
            found[name] = picked
        return [dict(zip(self.names, values, strict=True)) for values in zip(*found.values(), strict=True)]

    def only(self, rows: NDArray[np.int64]) -> Columns:
        """Some rows, in this order."""
        found: dict[str, Any] = {}
        for name in self.names:
            column = self._columns[name]
            found[name] = [column[row] for row in rows] if isinstance(column, list) else column.take(rows)
        return Columns(self.names, found)

    def lines(self) -> list[str]:
        """The rows as comma-separated values, below a line of names; a value that a row does not have is empty."""
        rows = zip(*map(self.values, self.names), strict=True)
        return Rows(self.names, tuple(rows)).csv().splitlines()

    def values(self, name: str) -> list[Any]:
        """A column as a list."""
        column = self._columns[name]
        return column if isinstance(column, list) else list(column.to_pylist())


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
