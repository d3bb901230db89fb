"""What few parameters leave of a table: a factor of its sizes, and of no others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ahbm.calibrate import residuals, templates, written
from ahbm.calibrate.laws import PLAIN, RAMPED, Law, ProtocolLaw, Rows, Shape
from ahbm.calibrate.tables import Table

LAW = Law(Shape(((PLAIN, RAMPED),)), 5.0, (ProtocolLaw(0.6, 40.0), ProtocolLaw(0.9, 360.0, 2e6)))


def rows(off: float, sizes: range = range(10, 31, 2)) -> Rows:
    """Rings of eight ranks, with a bump around 1 MiB."""
    n = np.array([2.0**at for at in sizes])
    ones = np.ones(len(n))
    found = Rows(n, ones, 8 * ones, ones, 14 * ones[None], 1.75 * ones[None], 0 * ones[None], 0 * ones[None])
    return replace(found, us=LAW.us(found) * np.exp(off * np.exp(-(((np.log2(n) - 20) / 3) ** 2))))


def test_a_bump_is_found_at_sizes_between_and_none_beyond() -> None:
    seen = rows(0.08)
    left = residuals.of(LAW, seen)
    assert left is not None
    between = rows(0.08, range(11, 30, 2))
    before = np.abs(np.log(LAW.us(between) / between.us)).mean()
    after = np.abs(np.log(LAW.us(between) * np.exp(left.at(between.n)) / between.us)).mean()
    assert after < before / 3
    assert np.abs(left.at(np.array([1.0, 2.0**40]))).max() < 1e-4


def test_a_row_in_error_bends_its_neighbours_by_little() -> None:
    seen = rows(0.0)
    seen.us[5] *= 3
    left = residuals.of(LAW, seen)
    assert left is not None
    assert np.abs(left.at(seen.n[[3, 7]])).max() < 0.03


def test_exact_rows_have_no_factors_and_several_ranks_no_residual() -> None:
    left = residuals.of(LAW, rows(0.0))
    assert left is not None
    assert left.factors(LAW, rows(0.0)) == []
    few = rows(0.0)
    few.steps[0, 0] = 3
    assert residuals.of(LAW, few) is None


def test_a_machine_takes_what_law_and_residual_say() -> None:
    seen = rows(0.08)
    left = residuals.of(LAW, seen)
    assert left is not None
    factors = left.factors(LAW, seen)
    assert (factors[0], factors[-1]) == ({"bytes": 16, "factor": 1.0}, {"bytes": 2**36, "factor": 1.0})
    template = templates.of([Table("t", "", "all_reduce", 8, 1, "H100", ())])
    tree = written.tree(template, LAW, 8, "all_reduce", factors=factors)
    plain = written.tree(template, LAW, 8, "all_reduce")
    emulator, without = written.emulator(tree), written.emulator(plain)
    for n, us in zip(seen.n[::3], (LAW.us(seen) * np.exp(left.at(seen.n)))[::3], strict=True):
        assert written.us(emulator, "all_reduce", 8, int(n)) == pytest.approx(us, rel=2e-3)
    assert written.us(emulator, "all_reduce", 8, 8) == written.us(without, "all_reduce", 8, 8)
