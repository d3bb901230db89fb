"""A slice of the random planted bugs: the checks report what the judge sees, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from planted.generator.cases import SOURCES, Case, case, cases, table
from planted.generator.mutations import BUGS, NONE

pytestmark = pytest.mark.slow
HOLES = {
    "xml": set[str](),
    "plan": set[str](),
    "kernel": {"narrow cast"},
}
"""Classes of which a check misses some: `benches/planted.py --cases` prints which."""


def test_one_case_of_every_class(tmp_path: Path) -> None:
    found: list[Case] = [
        case(f"slice/{source}/{bug}", source, tmp_path, bug) for source in SOURCES for bug in BUGS[source]
    ]
    found += [case(f"slice/{source}", source, tmp_path, NONE) for source in SOURCES]
    wrong = [one for one in found if one.judged is not None]
    assert len(found) >= 50 and len(wrong) >= 30
    assert [one.program.name for one in found if one.judged is None and not one.agreed] == []
    missed = [one.program for one in wrong if not one.agreed]
    assert [(program.source, program.bug) for program in missed if program.bug not in HOLES[program.source]] == []


def test_cases_are_the_same_every_time(tmp_path: Path) -> None:
    first, second = ([one.program.text for one in cases(6, 3, tmp_path)] for _ in range(2))
    assert first == second
    rows = table(list(cases(6, 3, tmp_path))).splitlines()
    assert rows[0].startswith("| planted | xml | plan | kernel |") and "right, as they were" in rows[-1]
