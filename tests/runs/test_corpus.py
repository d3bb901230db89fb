"""The verdicts of the corpus of public plans. Runs where AHBM_CORPUS names its folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ahbm.config.reading import Reading
from ahbm.runs.verdict import CheckOptions, check_files

CORPUS = os.environ.get("AHBM_CORPUS")
pytestmark = pytest.mark.skipif(CORPUS is None, reason="AHBM_CORPUS is not set")

# The executor does not load the plans of `unsupported_op`, but they mean something.
VERDICTS = {"ok": "correct", "custom": "no_expectation", "runs": "no_expectation", "unsupported_op": "correct"}


def differing(folder: Path, wanted: dict[str, str], settings: CheckOptions) -> list[str]:
    paths = [folder / name for name in wanted]
    answers = list(check_files(paths, settings))
    assert [checked.file for checked in answers if (checked.verdict == "correct") != (checked.proof is not None)] == []
    found = [(checked.verdict, checked.findings[:1]) for checked in answers]
    return [
        f"{name}: {verdict} instead of {expected}: {findings}"
        for (name, expected), (verdict, findings) in zip(wanted.items(), found, strict=True)
        if verdict != VERDICTS.get(expected, expected)
    ]


def expectations(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("slots", "field"), [(1, "fifo_1"), (2, "fifo_2"), (None, "fifo_unbounded")])
def test_msccl_xml(slots: int | None, field: str) -> None:
    folder = Path(CORPUS or "") / "msccl_xml"
    wanted = {name: entry[field] for name, entry in expectations(folder).items()}
    assert differing(folder, wanted, CheckOptions(slots=slots)) == []


def test_mscclpp_json() -> None:
    folder = Path(CORPUS or "") / "mscclpp_json"
    wanted = {name: entry["expected"] for name, entry in expectations(folder).items()}
    wanted = {name: verdict for name, verdict in wanted.items() if verdict != "undetermined"}
    assert differing(folder, wanted, CheckOptions()) == []


@pytest.mark.parametrize(("name", "lines"), [("forward", (145, 157)), ("backward", (341, 338))])
def test_all_to_next_over_four_nodes_races(name: str, lines: tuple[int, int]) -> None:
    """Two thread blocks write one chunk of scratch and no dependency orders them: one receives what a third block
    sends on, the other is a receive-copy-send whose copy nobody reads but which the runtime makes all the same."""
    path = Path(CORPUS or "") / "msccl_xml" / f"alltonext_{name}_nodes4.xml"
    (checked,) = check_files([path])
    assert checked.verdict == "no_expectation"
    assert [finding.code for finding in checked.findings[:2]] == ["AHBM-V404", "AHBM-V403"]
    assert [site.origin for site in checked.findings[1].sites] == [f"{path}:{line}" for line in lines]


def test_chakra() -> None:
    """Verdicts in words. The symbolic dialect numbers its chunks, and sizes alone are given chunks: both have a
    verdict on data. What belongs to a workload is read and named."""
    folder = Path(CORPUS or "") / "chakra"
    for name, facts in expectations(folder).items():
        readings = Reading(), Reading(lenient=True)
        (strict,), (lenient,) = (check_files([folder / name], CheckOptions(reading=reading)) for reading in readings)
        if "dangling" in facts["expected"]:
            dangling = facts["expected"].split(" dangling")[0].split()[-1]
            assert (strict.verdict, [f.code for f in strict.findings]) == ("malformed", ["AHBM-F134"]), name
            assert dangling in strict.findings[0].message
            assert any(f.code == "AHBM-F164" and dangling in f.message for f in lenient.findings), name
            strict = lenient
        assert (strict.format, strict.ranks) == ("chakra", facts["ranks"]), name
        if facts["kind"] == "workload":
            assert (strict.verdict, strict.findings[0].code) == ("unsupported", "AHBM-U231"), name
            continue
        assert strict.collective == facts["collective"], name
        assert (strict.verdict, strict.min_slots) == ("correct", 1), name
