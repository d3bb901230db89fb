"""Figures in words."""

import pytest

from ahbm.base.words import lasts


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (0.0632, "0.0632 ns"),
        (5, "5.00 ns"),
        (999.4, "999 ns"),
        (999.6, "1.00 us"),
        (9_996, "10.0 us"),
        (318_200_000, "318 ms"),
        (1e9, "1.00 s"),
        (1.2345e13, "12,300 s"),
        (-2_500, "-2.50 us"),
    ],
)
def test_times_have_three_digits_and_a_unit_that_fits(ns: float, text: str) -> None:
    assert lasts(ns) == text
