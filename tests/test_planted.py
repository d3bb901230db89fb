"""The corpus of planted bugs: what the checks must find, and what they must leave alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from planted.corpus import CLASSES, cases, table
from planted.files import direct
from planted.waits import Count, count


def test_planted_bugs_are_found_and_clean_programs_are_not_reported(tmp_path: Path) -> None:
    results = [(case, case.found()) for case in cases(tmp_path)]
    planted = [(case, found) for case, found in results if case.bug is not None]
    clean = [(case, found) for case, found in results if case.bug is None]
    assert len(planted) >= 120 and len(clean) >= 60
    assert {case.bug for case, _ in planted} == set(CLASSES)
    assert [case.name for case, found in clean if found] == []
    missed = [f"{case.source} {case.name}" for case, found in planted if not found]
    assert len(missed) <= 0.02 * len(planted), missed
    text = (Path(__file__).parents[1] / "docs/check.md").read_text(encoding="utf-8")
    assert table(results) in text, "docs/check.md shows another table; benches/planted.py prints the new one"


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_deleted_wait_of_a_correct_plan_is_reported(ranks: int, tmp_path: Path) -> None:
    counted, missed = count(direct(ranks, hello=False, goodbye=True), tmp_path)
    assert counted.deleted == 2 * ranks * (ranks - 1)
    assert (counted.matter, counted.reported, missed) == (counted.deleted, counted.deleted, [])


@pytest.mark.skipif("AHBM_CORPUS" not in os.environ, reason="AHBM_CORPUS is not set")
def test_deleted_waits_of_public_plans_are_reported(tmp_path: Path) -> None:
    total = Count()
    for path in sorted((Path(os.environ["AHBM_CORPUS"]) / "mscclpp_json").glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if "gpus" in document:
            total.add(count(document, tmp_path, most=1)[0])
    assert total.matter >= 20
    assert total.reported >= 0.95 * total.matter
