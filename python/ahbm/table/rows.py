"""Rows of plain values under named columns, and what they are written as."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from ahbm.base.arguments import checked, shown
from ahbm.base.store import store
from ahbm.errors import ConfigError, UnsupportedError


@dataclass(frozen=True, repr=False)
class Rows:
    """A sequence of rows, each a dict of plain values with the same columns."""

    columns: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...] = field(repr=False)
    """Per row, the value of each column."""

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """The rows as dicts."""
        return tuple(self)

    def column(self, name: str) -> list[Any]:
        """The values of a column. Raises ConfigError (AHBM-C187) where there is none of that name."""
        if not isinstance(name, str) or name not in self.columns:
            columns = ", ".join(self.columns)
            raise ConfigError("AHBM-C187", f"the rows have no column {shown(name)}", hint=f"one of {columns}")
        at = self.columns.index(name)
        return [values[at] for values in self.values]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.columns, values, strict=True)) for values in self.values)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return dict(zip(self.columns, self.values[index], strict=True))

    def to_arrow(self) -> Any:
        """A pyarrow.Table with `columns`. Raises UnsupportedError (AHBM-U145) where pyarrow is not installed."""
        arrow = _package("pyarrow")
        return arrow.table([arrow.array(self.column(name)) for name in self.columns], names=list(self.columns))

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
    try:
        return import_module(name)
    except ImportError as error:
        raise UnsupportedError(
            "AHBM-U145", f"{name} is not installed", hint=f"pip install {name}; or to_csv, which needs nothing"
        ) from error


def _stored(path: str | Path, content: str) -> Path:
    target = Path(path)
    try:
        store({target: content.encode()})
    except OSError as error:
        raise ConfigError("AHBM-C141", f"{target} cannot be written: {error}") from error
    return target
