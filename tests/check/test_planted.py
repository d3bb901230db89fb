"""The corpus of planted bugs: what the checks must find, and what they must leave alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from planted import behind
from planted.case import Case
from planted.corpus import CLASSES, SOURCES, cases, table
from planted.files import direct
from planted.waits import Count, count

pytestmark = pytest.mark.slow
MISSED: frozenset[tuple[str, str]] = frozenset()
"""Source and name of the planted bugs that no check finds; the page shows them as missed."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    return cases(tmp_path_factory.mktemp("planted"))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("bug", [*CLASSES, None])
def test_planted_bugs_are_found_and_clean_programs_are_not_reported(
    bug: str | None, source: str, corpus: list[Case]
) -> None:
    chosen = [case for case in corpus if (case.bug, case.source) == (bug, source)]
    assert [case.name for case in chosen if case.found() != expected(case)] == []


def expected(case: Case) -> bool:
    return case.bug is not None and (case.source, case.name) not in MISSED


def test_the_corpus_and_the_table_of_the_page(corpus: list[Case]) -> None:
    results = [(case, expected(case)) for case in corpus]
    planted = [case for case, _ in results if case.bug is not None]
    assert len(planted) >= 120 and len(results) - len(planted) >= 60
    assert {case.bug for case in planted} == set(CLASSES)
    assert len(MISSED) <= 0.02 * len(planted)
    text = (Path(__file__).parents[2] / "docs/records/measurements.md").read_text(encoding="utf-8")
    assert table(results) in text, "the page shows another table; benches/planted.py prints the new one"


def test_nothing_is_silently_wrong_behind_distributed(corpus: list[Case]) -> None:
    for case in corpus:
        if case.arguments is None:
            continue
        seen = behind.outcome(case.path, **case.arguments)
        # Ranks whose bits differ are right.
        assert seen == ("right" if case.bug in (None, "divergence") else "error"), case.name


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_deleted_wait_of_a_correct_plan_is_reported(ranks: int, tmp_path: Path) -> None:
    counted, missed = count(direct(ranks, hello=False, goodbye=True), tmp_path)
    assert counted.deleted == 2 * ranks * (ranks - 1)
    assert (counted.matter, counted.reported, missed) == (counted.deleted, counted.deleted, [])


@pytest.mark.skipif("AHBM_CORPUS" not in os.environ, reason="AHBM_CORPUS is not set")
@pytest.mark.parametrize("share", range(4))
def test_deleted_waits_of_public_plans_are_reported(share: int, tmp_path: Path) -> None:
    total = Count()
    for path in sorted((Path(os.environ["AHBM_CORPUS"]) / "mscclpp_json").glob("*.json"))[share::4]:
        document = json.loads(path.read_text(encoding="utf-8"))
        if "gpus" in document:
            total.add(count(document, tmp_path, most=1)[0])
    assert total.matter >= 4
    assert total.reported >= 0.95 * total.matter
