"""A wrong result names the kernel's own line, what it depends on, and what the wrong numbers have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from ahbm.runs.verdict import Checked, check_kernel
from planted.lines import HELPERS, NEAR, STAR, blames, table


def checked(folder: Path, text: str, old: str, new: str, **more: object) -> tuple[Checked, int]:
    """The verdict on a kernel with one line changed, and the line."""
    assert text.count(old) >= 1
    line = text[: text.index(old)].count("\n") + 1
    path = folder / "mine.py"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    arguments: dict[str, object] = {"ranks": [4], "sizes": [256], "dtype": "f32", **more}
    return check_kernel(str(path), None, "npu_ring_8", **arguments), line  # type: ignore[arg-type]


def test_a_block_that_is_stored_elsewhere(tmp_path: Path) -> None:
    found, line = checked(tmp_path, HELPERS, "tl.store(t_ptr + (me - k)", "tl.store(t_ptr + (me + k)")
    first = found.findings[0]
    assert first.code == "AHBM-V301" and first.sites[0].origin == f"mine.py:{line}"
    assert first.sites[0].label == "element 16 of rank 0 is written here: store"
    assert "stands what belongs 32 elements further on" in str(first.hint)


def test_a_helper_stands_behind_the_line_that_calls_it(tmp_path: Path) -> None:
    found, _ = checked(
        tmp_path, HELPERS, "send_to(tl, (me + k) % w, mine)", "me != 2 and send_to(tl, (me + k) % w, mine)"
    )
    first = found.findings[0]
    assert first.code == "AHBM-L104" and "mine.py:22 -> mine.py:13" in [site.origin for site in first.sites]
    assert "in this loop" in [site.label for site in first.sites]
    assert "and the same 2 more times" in str(found), "one cause is told once"


@pytest.mark.parametrize(
    ("old", "new", "op", "hint"),
    [
        ("acc = acc / w", "acc = acc * 0.125", "avg", "all elements are 1/2 of what they should be"),
        ("dtype=dtype), op)", "dtype=dtype), 'sum')", "max", "are the sum of all contributions, not their max"),
        ("acc = tl.load(t_ptr, shape=(n,), dtype=dtype)",
         "acc = tl.cast(tl.cast(tl.load(t_ptr, shape=(n,), dtype=dtype), 'f16'), dtype)", "max",
         "that line casts to a type narrower than f32, which loses bits"),
        ("acc = tl.load(t_ptr, shape=(n,), dtype=dtype)",
         "acc = tl.maximum(tl.load(t_ptr, shape=(n,), dtype=dtype), 0.0)", "max", "is a value changed on its way"),
    ],
)  # fmt: skip
def test_the_hint_is_derived_from_the_numbers(old: str, new: str, op: str, hint: str, tmp_path: Path) -> None:
    found, line = checked(tmp_path, STAR, old, new, op=op)
    first = found.findings[0]
    assert found.verdict == "wrong" and hint in str(first.hint)
    assert first.sites[0].origin == f"mine.py:{line}" and "as it should be until here" in first.sites[0].label


def test_a_contribution_that_is_added_twice(tmp_path: Path) -> None:
    found, line = checked(tmp_path, STAR, 'if op == "avg":', 'acc = acc + acc\n        if op == "avg":')
    first = found.findings[0]
    assert first.sites[0].origin == f"mine.py:{line}" and "a second time here: add" in first.sites[0].label
    assert "all elements are 2 of what they should be" in str(first.hint)


def test_a_rank_that_does_nothing(tmp_path: Path) -> None:
    found, line = checked(tmp_path, STAR, "acc = tl.load(t_ptr", "if w == 4:\n        return\n    acc = tl.load(t_ptr")
    first = found.findings[0]
    assert first.sites[0].origin == f"mine.py:{line}" and "does the kernel end here?" in first.sites[0].label


def test_a_barrier_names_the_last_operation(tmp_path: Path) -> None:
    text = Path(__file__).parents[2].joinpath("python/ahbm/data/algorithms/dissemination_barrier.py").read_text()
    found, _ = checked(tmp_path, text, "distance *= 2", "distance *= 3", ranks=[5])
    first = found.findings[0]
    assert first.code == "AHBM-V415" and first.sites[0].label.startswith("the last operation of rank ")
    assert str(first.sites[0].origin).startswith("mine.py:")


@pytest.mark.slow
def test_findings_point_near_a_changed_line(tmp_path: Path) -> None:
    found = list(blames(12, 1, tmp_path))
    near = [blame for blame in found if blame.distance is not None and blame.distance <= NEAR]
    assert len(found) >= 90 and len(near) >= 0.85 * len(found), table(found)
    assert all(blame.lines for blame in found)
