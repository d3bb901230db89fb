"""What rows hardly tell: numbers that one row does not change."""

from __future__ import annotations

import numpy as np
import pytest

from ahbm.calibrate import constants, fit, uncertainty
from ahbm.calibrate.laws import FREE, PLAIN, Law, ProtocolLaw, Rows, Shape

EXACT = Law(Shape(((PLAIN, FREE),)), 0.0, (ProtocolLaw(0.6, 1.1), ProtocolLaw(0.9, 370.0, 2e6, 0.6)))


def rows(law: Law, sizes: range, noise: float = 0.0) -> Rows:
    """Rings of eight ranks."""
    n = np.array([2.0**at for at in sizes])
    ones = np.ones(len(n))
    found = Rows(n, ones, 8 * ones, ones, 14 * ones[None], 1.75 * ones[None], 0 * ones[None], 0 * ones[None])
    us = law.us(found) * np.exp(np.random.default_rng(0).normal(0, noise, len(n)))
    return Rows(n, us, *(getattr(found, name) for name in list(Rows.__dataclass_fields__)[2:]))


@pytest.mark.slow
def test_numbers_that_rows_hardly_tell_are_round_and_stay_where_a_row_changes() -> None:
    noisy = rows(EXACT, range(6, 31), noise=0.04)
    ll, simple = fit.chosen(noisy).protocols
    assert np.log2(ll.gbs) % 1 == 0
    assert 2 * np.log2(simple.ramp_bytes) % 1 == pytest.approx(0, abs=1e-9)
    assert simple.gbs == pytest.approx(370, rel=0.05)
    noisy.us[9] *= 1.05
    again = fit.chosen(noisy).protocols
    assert [each.gbs for each in again] == pytest.approx([ll.gbs, simple.gbs], rel=0.05)
    assert (again[0].gbs, again[1].ramp_bytes) == (ll.gbs, simple.ramp_bytes)


@pytest.mark.slow
def test_numbers_that_rows_tell_are_as_found() -> None:
    ll, simple = fit.chosen(rows(EXACT, range(6, 31))).protocols
    assert (ll.step_us, ll.gbs) == pytest.approx((0.6, 1.1), rel=1e-3)
    assert (simple.step_us, simple.gbs, simple.ramp_bytes) == pytest.approx((0.9, 370, 2e6), rel=1e-3)


def test_a_step_that_no_row_tells_is_a_known_one() -> None:
    law = Law(Shape(((PLAIN,),)), 0.0, (ProtocolLaw(0.05, 370.0),))
    assert fit.chosen(rows(law, range(29, 35), noise=0.02)).protocols[0].step_us == constants.steps().inside


def test_a_number_that_is_kept_has_no_error_and_stays() -> None:
    seen = rows(EXACT, range(6, 31), noise=0.02)
    assert len(uncertainty.covariance(EXACT, seen)) == 6
    assert len(uncertainty.covariance(EXACT, seen, [1, 4])) == 4
    found = uncertainty.roughest(EXACT, seen, [])
    assert found is not None
    at, numbers = found
    assert uncertainty.parameters(EXACT, seen)[at] == (1, "ramp_bytes")
    assert numbers == pytest.approx([2.0**20.5, 2.0**21])
    assert (uncertainty.roughest(EXACT, seen, [at]) or (None,))[0] not in (None, at)
