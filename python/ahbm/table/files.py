"""The files of a store, a folder or an object store: parts that are written once and never changed, by whoever has run
their cases, so that stores can be shared, and merged by copying their parts.

`spaces/*.json` say what was asked for, `space.json` what ran last, `parts/*` have the rows as Parquet. The name of a
part says what is in it (`ahbm.table.parts`). Needs the extra `sweep`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ahbm.base import codes
from ahbm.base.optional import needed
from ahbm.base.store import writing
from ahbm.errors import ConfigError
from ahbm.table.build import build
from ahbm.table.columns import LOST, STORED, unit_of
from ahbm.table.parts import FRESH, Part, build_of, digest_of, key_sum, missing, united
from ahbm.table.place import Place
from ahbm.table.rows import Rows

if TYPE_CHECKING:
    from ahbm.table.cases import Case

NAMES = tuple(column.name for column in STORED)
Row = tuple[Any, ...]
"""Values of `STORED`."""

INTERNAL = "AHBM-Z001"
CELL = "cell"
"""The column of what a row was made of, where somebody wants more of it than `STORED`; see `ahbm.table.kept`."""
ID = "id"
"""The column of the first 60 bits of the key: that rows differ is seen by numbers."""
FORMAT = 2
"""Of a store."""
NO_PROOF = (LOST, INTERNAL)
"""Codes of rows that may be others on another day: their cases run again."""
KINDS = {
    **{column.name: column.kind for column in STORED},
    **{"key": str, ID: int, "space": str, "at": int, CELL: str},
}
"""What each column holds but those of overrides. Five only a store has: the identity of the row and its first digits as
a number, the space that it was run for, its position there, and `CELL`."""
WORDS = [*(column.name for column in STORED if column.few), "space"]
"""Columns of few different texts, which are not read one by one."""
HIDDEN = (CELL, ID)
"""Columns that answers do not have."""
PIECE = 8192
"""Rows of a part that are read together: of a few, not all are."""


def pyarrow() -> Any:
    """pyarrow and its Parquet. Raises UnsupportedError (AHBM-U145) where it is not installed."""
    needed("pyarrow.parquet", "pyarrow is not installed: a store of rows needs it", "pip install ahbm[sweep]")
    return import_module("pyarrow")


@dataclass(frozen=True)
class Unfinished:
    """How much of what ran last a store has."""

    done: int
    """Positions of the space whose cases are there, by the build that ran last."""
    cases: int
    """Those that there are."""

    def __str__(self) -> str:
        share = f"{self.done:,} of {self.cases:,} cases have run"
        return f"unfinished: {share}; what is missing may change this answer (the same sweep again goes on)"

    def to_json(self) -> dict[str, int]:
        """The fields as JSON-serialisable data."""
        return {"done": self.done, "cases": self.cases}


class Files:
    """The parts of a store, and what was asked for."""

    def __init__(self, at: str | Path) -> None:
        """at: a folder, or a URL that fsspec knows.

        Raises UnsupportedError (AHBM-U145) where what it needs is not installed, ConfigError (AHBM-C186) for a URL of
        an unknown kind.
        """
        pyarrow()
        self.place = Place(at)
        self.folder = str(at)

    def begin(self, space: Mapping[str, Any], cases: int = 0) -> str:
        """Makes the store, writes what runs, plain values, of so many positions (0 where nobody counts them), and
        returns their digest, 16 hex digits.

        Raises ConfigError: AHBM-C141 where it cannot be written, C186 for a store of an older version.
        """
        # What is computed of rows when they are asked does not tell spaces apart.
        text = json.dumps({key: value for key, value in space.items() if key != "cost"}, sort_keys=True)
        digest = hashlib.sha256(f"{FORMAT} {text}".encode()).hexdigest()[:16]
        about = {"format": FORMAT, "ahbm": build(), "digest": digest, "cases": cases, "space": space}
        content = (json.dumps(about, indent=2) + "\n").encode()
        self._names()
        with writing(self.folder, "AHBM-C141"):
            for folder in ("parts", "spaces"):
                self.place.begin(folder)
            self.place.write(f"spaces/{digest}.json", content)
            self.place.write("space.json", content)
        return digest

    def about(self) -> dict[str, Any]:
        """What ran last, with its `digest`, `cases`, `space` and the build `ahbm`; empty where nobody says."""
        try:
            found = json.loads(self.place.read("space.json"))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def add(
        self,
        space: str,
        cases: Sequence[Case],
        rows: Sequence[Row],
        kinds: Mapping[str, str],
        cells: Sequence[str] = (),
        *,
        span: range = range(0),
        keys: int | None = None,
        wrong: int | None = None,
    ) -> Part:
        """Writes the rows of some cases as one part, whole or not at all, and returns it. `kinds`: the type of each
        column of overrides, "int64", "double" or "string". `cells`: the values of `CELL`, of all rows or of none.
        `span`: the positions of the space whose cases are in the store then, with the sum of their keys and the number
        of wrong results; by default those of the rows.

        Raises ConfigError (AHBM-C141) where it cannot be written.
        """
        arrow = pyarrow()
        named = [case.key for case in cases]
        columns: dict[str, list[Any]] = {"key": named, ID: [int(key[:15], 16) for key in named]}
        values = map(list, zip(*rows, strict=True)) if rows else ([] for _ in NAMES)
        columns |= dict(zip(NAMES, values, strict=True))
        columns |= {name: [_as(kind, case.sweep.varied.get(name)) for case in cases] for name, kind in kinds.items()}
        columns |= {"space": [space] * len(cases), "at": [case.at for case in cases]}
        columns |= {CELL: list(cells)} if cells else {}
        typed = ((name, _type(arrow, name, kinds)) for name in columns)
        schema = arrow.schema([arrow.field(name, kind, metadata={"unit": unit_of(name)}) for name, kind in typed])
        judged = list(zip(columns["wrong"], columns["code"], strict=True))
        part = Part(
            space,
            build_of(build()),
            span.start,
            span.stop,
            len(cases),
            sum(is_wrong(*one) for one in judged) if wrong is None else wrong,
            sum(code in NO_PROOF for _, code in judged),
            FRESH,
            key_sum(named) if keys is None else keys,
            digest_of(named),
        )
        with writing(f"{self.folder}/parts/{part.name}", "AHBM-C141"):
            self.place.write(f"parts/{part.name}", _parquet(arrow.table(columns, schema=schema)))
        return part

    def parts(self) -> list[Part]:
        """The parts, in order. Raises ConfigError (AHBM-C186) for a folder without any."""
        found = self._names()
        if found is None and self.about():
            # Object stores have no empty folders.
            return []
        if found is None:
            hint = "ahbm sweep SPACE.yaml -o DIR makes one"
            raise ConfigError("AHBM-C186", f"{self.folder} holds no sweep", hint=hint)
        return found

    def _names(self) -> list[Part] | None:
        """The parts; None where there are none. Raises ConfigError (AHBM-C186)."""
        try:
            names = self.place.names("parts")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError("AHBM-C186", f"{self.folder} cannot be read: {error}") from error
        return sorted(part for part in map(Part.of, names) if part is not None)

    def unfinished(self) -> Unfinished | None:
        """How much is there of what ran last, where not all of it is. Reads no row."""
        about = self.about()
        cases, digest, by = (about.get(name) for name in ("cases", "digest", "ahbm"))
        if not cases or not isinstance(cases, int):
            return None
        own = [one for one in self.parts() if one.space == digest and one.build == build_of(str(by))]
        spans = united((one.first, one.end) for one in own)
        left = sum(end - first for first, end in missing(spans, 0, cases))
        return Unfinished(cases - left, cases) if left else None

    def read(self, names: Sequence[str] | None = None, parts: Sequence[Part] | None = None) -> Rows:
        """All rows of some parts, of all by default, or some of their columns, in the order of the parts.

        Raises ConfigError: AHBM-C186 for what cannot be read, C187 for columns that there are not.
        """
        arrow, tables = pyarrow(), []
        for part in self.parts() if parts is None else parts:
            with self.opened(part) as file:
                has = file.schema_arrow.names
                tables.append(file.read(None if names is None else [name for name in names if name in has]))
        if not tables:
            return Rows(tuple(names or ("key", *NAMES, "space", "at")), [])
        known = dict.fromkeys(name for table in tables for name in table.column_names)
        Rows(tuple(known), {}).refuse_unknown(list(names or ()))
        table = arrow.concat_tables(tables, promote_options="permissive")
        return columns_of(table.select(list(names)) if names is not None else table)

    @contextmanager
    def opened(self, part: Part) -> Iterator[Any]:
        """A part as a file of Parquet. Raises ConfigError (AHBM-C186) for what is none."""
        arrow, path = pyarrow(), f"parts/{part.name}"
        try:
            with self.place.open(path) as file:
                found = import_module("pyarrow.parquet").ParquetFile(file, read_dictionary=WORDS)
                if {"key", ID} - set(found.schema_arrow.names):
                    raise ValueError("it has no keys")
                yield found
        except FileNotFoundError:
            raise
        except (OSError, ValueError, arrow.ArrowException) as error:
            raise ConfigError("AHBM-C186", f"{self.place.named(path)} is no part of a sweep: {error}") from error

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """A file of this computer that will be a part, removed where it does not become one."""
        beside = None if self.place.remote else self.place.folder / "parts"
        handle, name = tempfile.mkstemp(".part", ".", beside)
        os.close(handle)
        try:
            yield Path(name)
        finally:
            Path(name).unlink(missing_ok=True)


def is_wrong(wrong: int | None, code: str | None) -> bool:
    """Whether a row says that a result is wrong."""
    return bool(wrong) or codes.says_wrong(code)


def columns_of(table: Any) -> Rows:
    """A table of pyarrow."""
    return Rows(table.column_names, {name: table.column(name) for name in table.column_names})


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
    import_module("pyarrow.parquet").write_table(table, out, **written(table.column_names))
    return out.getvalue()


def written(names: Sequence[str]) -> dict[str, Any]:
    """How parts are written: equal rows are equal bytes, and keys do not compress."""
    packed = [name for name in names if name not in ("key", ID)]
    return {"compression": "zstd", "use_dictionary": packed, "write_statistics": False}
