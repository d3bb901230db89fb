"""Few parts of many: each key once, a part in memory at a time, beside whoever writes and asks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm.base.store import writing
from ahbm.errors import ConfigError
from ahbm.table.files import ID, NO_PROOF, PIECE, Files, pyarrow, written
from ahbm.table.parts import FRESH, Part, digest_of, sums

ROWS = 1_000_000
"""Of a merged part, about."""
LOOKED = 20_000_000
"""Keys that are looked at together."""
RETRIES = 5
"""Times that a merge begins anew because another took the parts away."""


def compact(store: Files) -> tuple[int, int]:
    """See `ahbm.table.store.Store.compact`."""
    for left in reversed(range(RETRIES)):
        before = store.parts()
        try:
            return len(before), _merged(store, before)
        except FileNotFoundError as error:
            if not left:
                message = f"{store.folder} is merged by somebody else: {error}"
                raise ConfigError("AHBM-C186", message) from error
    raise AssertionError


def _merged(store: Files, before: Sequence[Part]) -> int:
    if len({part.merge for part in before}) == 1 and before[0].merge != FRESH:
        return len(before)
    own = str(store.about().get("digest", ""))
    order = sorted(before, key=lambda part: (part.space != own, part))
    twice = _twice(store, order, own)
    merge = hashlib.sha256("\n".join(sorted(part.name for part in before)).encode()).hexdigest()[:8]
    made: set[str] = set()
    for _, alike in groupby(order, key=lambda part: (part.space, part.build, part.unproved > 0, part.end > part.first)):
        for tiles, inside in _runs(list(alike)):
            made |= _written(store, [*tiles, *inside], frozenset(tiles), twice, merge)
    for part in before:
        if part.name not in made:
            store.place.remove(f"parts/{part.name}")
    return len(made)


def _runs(parts: Sequence[Part]) -> Iterator[tuple[list[Part], list[Part]]]:
    """Parts to merge, in about `ROWS` rows: those of which each begins where the one before ends, and others that cover
    nothing more."""
    left = sorted(parts)
    while left:
        tiles = _tiles(left)
        first, end = tiles[0].first, tiles[-1].end
        inside = [part for part in left if part not in tiles and first <= part.first and part.end <= end]
        left = [part for part in left if part not in tiles and part not in inside]
        some: list[Part] = []
        for part in tiles:
            if some and sum(one.rows for one in some) + part.rows > ROWS:
                yield some, inside
                some, inside = [], []
            some.append(part)
        yield some, inside


def _tiles(parts: Sequence[Part]) -> list[Part]:
    """Parts from the least position on, each of which begins where the one before ends, as far as there are any."""
    least = min(part.first for part in parts)
    if all(part.end == part.first for part in parts):
        return list(parts)
    # By where they end: the part before, on a way from the least position.
    way: dict[int, Part | None] = {least: None}
    for part in sorted(parts, key=lambda part: (part.first, part.end)):
        if part.first in way and part.end > part.first:
            way.setdefault(part.end, part)
    tiles: list[Part] = []
    last = way[max(way)]
    while last is not None:
        tiles.append(last)
        last = way[last.first]
    return tiles[::-1]


def _twice(store: Files, parts: Sequence[Part], own: str) -> dict[Part, NDArray[np.int64]]:
    """The rows of parts that others stand for: of every key, all but its first proof."""
    dropped: dict[Part, list[int]] = {}
    buckets = max(1, -(-sum(part.rows for part in parts) // LOOKED))
    for bucket in range(buckets):
        found = []
        for part in parts:
            with store.opened(part) as file:
                ids = file.read([ID]).column(0).to_numpy()
                found.append(ids[ids % buckets == bucket] if buckets > 1 else ids)
        ids = np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)
        again = np.unique(ids[1:][ids[1:] == ids[:-1]])
        if not len(again):
            continue
        first: dict[str, tuple[tuple[bool, bool, str, int], Part, int]] = {}
        for part in parts:
            with store.opened(part) as file:
                rows = np.flatnonzero(np.isin(file.read([ID]).column(0).to_numpy(), again))
                if not len(rows):
                    continue
                table = file.read(["key", "code", "at"]).take(rows)
            values = zip(rows.tolist(), *(table.column(name).to_pylist() for name in table.column_names), strict=True)
            for row, key, code, at in values:
                mine = (code in NO_PROOF, part.space != own, part.space, at)
                other = first.get(key)
                loser = (part, row) if other is not None and mine >= other[0] else other and other[1:]
                if other is None or mine < other[0]:
                    first[key] = mine, part, row
                if loser:
                    dropped.setdefault(loser[0], []).append(loser[1])
    return {part: np.array(sorted(rows), dtype=np.int64) for part, rows in dropped.items()}


def _written(
    store: Files,
    parts: Sequence[Part],
    tiles: frozenset[Part],
    without: Mapping[Part, NDArray[np.int64]],
    merge: str,
) -> set[str]:
    """One part of several, or of those with other columns each its own."""
    parquet = import_module("pyarrow.parquet")
    made: set[str] = set()
    waiting = list(parts)
    while waiting:
        with store.writing() as path:
            writer: Any = None
            schema: Any = None
            keys: list[str] = []
            taken: list[Part] = []
            rows = unproved = 0
            while waiting:
                part = waiting[0]
                with store.opened(part) as file:
                    table = _plain(file.read())
                if schema is not None and table.schema != schema:
                    break
                waiting.pop(0)
                if writer is None:
                    schema = table.schema
                    writer = parquet.ParquetWriter(path, schema, **written(schema.names))
                if part in without:
                    table = table.take(np.setdiff1d(np.arange(len(table)), without[part]))
                unproved += sum(code in NO_PROOF for code in table.column("code").to_pylist())
                keys.append(digest_of(table.column("key").to_pylist()))
                rows += len(table)
                taken.append(part)
                writer.write_table(table, row_group_size=PIECE)
            writer.close()
            named = _named(taken, [part for part in taken if part in tiles], rows, unproved, merge, keys)
            with writing(f"{store.folder}/parts/{named.name}", "AHBM-C141"):
                store.place.take(path, f"parts/{named.name}")
            made.add(named.name)
    return made


def _named(
    parts: Sequence[Part], tiles: Sequence[Part], rows: int, unproved: int, merge: str, keys: Sequence[str]
) -> Part:
    first, end = (tiles[0].first, tiles[-1].end) if tiles else (0, 0)
    digest = hashlib.sha256("".join(keys).encode()).hexdigest()[:16]
    wrong, sum_ = sum(part.wrong for part in tiles), sums(part.sum for part in tiles)
    return Part(parts[0].space, parts[0].build, first, end, rows, wrong, unproved, merge, sum_, digest)


def _plain(table: Any) -> Any:
    """Without dictionaries, which differ from part to part."""
    arrow = pyarrow()
    fields = [arrow.field(f.name, getattr(f.type, "value_type", f.type)) for f in table.schema]
    return table.cast(arrow.schema(fields))
