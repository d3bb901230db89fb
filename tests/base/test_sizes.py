"""Sizes that do not divide: one rule, and what is said of them."""

from __future__ import annotations

import pytest

from ahbm.base.sizes import Resized, Unit, resize_notes


@pytest.mark.parametrize(("asked", "ran"), [(0, 0), (1, 32), (31, 32), (32, 32), (33, 32), (95, 64), (96, 96)])
def test_a_size_is_rounded_down_and_never_to_nothing(asked: int, ran: int) -> None:
    assert Unit(32, "").whole(asked) == ran


def test_a_unit_is_of_the_collective() -> None:
    assert Unit.of_arrays("all_gather", 8, "f32") == (32, "all_gather of 8 ranks")
    assert Unit.of_arrays("all_reduce", 8, "f32") == (4, "all_reduce of f32")
    assert Unit(8, "a").and_of(12, "b") == (24, "b")
    assert Unit(8, "a").and_of(4, "b") == (8, "a")


def test_sizes_that_become_equal_run_once_and_are_named() -> None:
    unit = Unit.of_arrays("all_gather", 8, "f32")
    found = list(unit.fit([8, 16, 32, 40, 64]))
    assert [size for size, _ in found] == [32, 64]
    first, second = (resized for _, resized in found)
    assert first == Resized((8, 16, 40), 32, 32, "all_gather of 8 ranks") and second is None
    assert str(first) == "8, 16, 40 B became 32 B: all_gather of 8 ranks takes multiples of 32 B"
    assert first is not None and Resized.from_json(first.to_json()) == first


def test_changes_for_one_reason_are_one_sentence() -> None:
    changes = [resized for _, resized in Unit(24, "x").fit([25, 50, 96])]
    assert resize_notes(changes) == ["25 B became 24 B, 50 B became 48 B: x takes multiples of 24 B"]
    many = resize_notes(resized for _, resized in Unit(24, "x").fit(range(25, 2400, 24)))
    assert len(many) == 1 and len(many[0]) < 300
