"""Answers of stores are those of their rows: whatever parts there are, of however many spaces, merged or not."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahbm.sweeps import answers, stored
from ahbm.table import merging, query
from ahbm.table.build import build
from ahbm.table.cases import Case, Sweep
from ahbm.table.files import NAMES
from ahbm.table.parts import Part, united
from ahbm.table.store import Store

pytestmark = pytest.mark.usefixtures("here")

GBS, KIND = "system.sips.link.bandwidth_gbs", "kind"


def filled(seed: int, folder: str) -> Store:
    """Rows by chance: of one to three spaces, with keys that are there twice, wrong ones, others that did not run."""
    chance = random.Random(seed)
    store = Store(folder)
    for number in range(chance.choice([1, 1, 2, 3])):
        spread = chance.random() < 0.5
        space = store.begin({"seed": seed, "number": number}, 0)
        text = chance.random() < 0.3
        at = 0
        for _ in range(chance.randint(1, 5)):
            cases, rows = [], []
            for _ in range(chance.randint(0, 40)):
                key = f"{chance.randrange(1 << 40 if number == 0 else 200):064x}"
                gbs: Any = chance.uniform(1, 9) if spread else chance.randint(1, 3)
                varied = {GBS: chance.choice("ab") if text else gbs, KIND: chance.choice([1, None])}
                cases.append(Case(Sweep("all_reduce", 1, 1, varied=varied), "x", 1, at=at, key=key[::-1]))
                at += 1
                failed = chance.random() < 0.1
                values = dict.fromkeys(NAMES) | {
                    "collective": "all_reduce",
                    "algorithm": chance.choice("abc"),
                    "machine": chance.choice("mn"),
                    "topology": chance.choice(["ring_1d", "switch"]),
                    "ranks": chance.choice([4, 8]),
                    "bytes": chance.choice([1024, 2048]),
                    "latency_ns": None if failed else float(chance.randint(1, 12)),
                    "links": chance.randint(1, 6),
                    "wrong": chance.choice([None, 0, 0, 3]) if not failed else None,
                    "version": build() if chance.random() < 0.8 or number == 0 else "0+other",
                    "code": chance.choice(["AHBM-X140", "AHBM-C115"]) if failed else None,
                }
                rows.append(tuple(values.values()))
            kinds = {GBS: "string" if text else "double", KIND: "int64"}
            store.add(space, cases, rows, kinds)
    return store


@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_answers_of_a_store_are_those_of_its_rows(seed: int, narrow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "NARROW", 1 << 40 if narrow else 0)
    store = filled(seed, "rows")
    rows = store.rows()
    keys = rows.column("key")
    assert len(keys) == len(set(keys))
    for goals in (["time"], ["time", "links"], ["time", "-links", "ranks"]):
        found, wrong = stored.pareto(store, goals)
        assert found.take(range(len(found))) == rows.take(answers.pareto(rows, goals))
        assert wrong == answers.wrong_by(rows)
    mine, theirs = stored.sensitivity(store), answers.sensitivity(rows)
    assert [(one.key, [value for value, _ in one.values]) for one in mine] == [
        (one.key, [value for value, _ in one.values]) for one in theirs
    ]
    assert [one.factor for one in mine] == pytest.approx([one.factor for one in theirs], rel=1e-9)


SPANS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), min_size=1, max_size=8)


@settings(max_examples=200, deadline=None)
@given(SPANS)
def test_a_merge_covers_what_its_parts_cover(spans: list[tuple[int, int]]) -> None:
    parts = list(
        dict.fromkeys(
            Part("s", "b", first, first + more, 0, 0, 0, "m", at, "d") for at, (first, more) in enumerate(spans)
        )
    )
    seen, covered = list[Part](), []
    for tiles, inside in merging._runs(parts):
        assert all(one.end == other.first for one, other in pairwise(tiles))
        covered.append((tiles[0].first, tiles[-1].end))
        seen += [*tiles, *inside]
    assert sorted(seen) == sorted(parts)
    assert united(covered) == united((part.first, part.end) for part in parts)


@pytest.mark.parametrize("looked", [20_000_000, 7])
@pytest.mark.parametrize("seed", range(6))
def test_a_merge_changes_no_row(seed: int, looked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "LOOKED", looked)
    store = filled(seed, "rows")
    before = store.rows()
    many, few = store.compact()
    assert few <= many and store.rows().csv() == before.csv()
    keys = store.read(("key",)).column("key")
    assert len(keys) == len(set(keys))
    assert not [path for path in Path("rows/parts").iterdir() if path.name.startswith(".")]
    assert store.compact() == (few, few)
