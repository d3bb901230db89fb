"""Whatever `ahbm.run` is given: it runs, or an error of AHBM names the argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ahbm
from ahbm.errors import AhbmError, ConfigError

HOSTILE = [None, -1, "1K", b"x", 1.5, True, np.int64(4), "", [], {}, object(), 2**80, "9" * 30, "\x00", "x" * 10_000]
KEYWORDS = {
    "collective": {},
    "algorithm": {},
    "topology": {},
    "bytes_per_rank": {},
    "bytes_per_pe": {"bytes_per_rank": None},
    "dtype": {},
    "op": {},
    "root": {"collective": "broadcast"},
    "src": {"collective": "send_recv"},
    "dst": {"collective": "send_recv"},
    "placement": {},
    "overrides": {},
    "ccl": {},
    "emulator": {},
    "seed": {},
    "mode": {},
    "check": {},
}


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_nothing_but_errors_of_ahbm_comes_back(keyword: str, here: Any) -> None:
    for value in HOSTILE:
        given: dict[str, Any] = {"bytes_per_rank": 64, **KEYWORDS[keyword], keyword: value}
        try:
            ahbm.run(**given)
        except AhbmError as error:
            assert error.code


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"seed": -1}, "seed must be an integer from 0"),
        ({"dtype": None}, "dtype must be a text, not None"),
        ({"check": None}, "check must be True, False, or names of checks"),
        ({"check": b"all"}, "check must be True, False, or names of checks"),
        ({"overrides": 3}, "overrides must be a mapping"),
        ({"placement": "row_wise"}, "placement must be an ahbm.DPPolicy"),
        ({"op": "x" * 1000}, "unknown reduction operator"),
        ({"seed": "x" * 1000}, "xxx..."),
    ],
)
def test_the_argument_and_the_accepted_values_are_named(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ahbm.run(bytes_per_rank=64, **given)
    assert told in str(caught.value)


def test_checks_may_be_any_names_in_a_row() -> None:
    wanted = ahbm.run(bytes_per_rank=64, check="race,uninit")
    assert ahbm.run(bytes_per_rank=64, check=(name for name in ("uninit", "race"))) == wanted
    assert ahbm.run(bytes_per_rank=64, check={"race": 1, "uninit": 2}) == wanted


def test_sizes_may_be_texts_and_numbers_numpys() -> None:
    plain = ahbm.run(bytes_per_rank=1024, overrides={"system.sips.count": 4})
    assert ahbm.run(bytes_per_rank="1K", overrides={"system.sips.count": np.int64(4)}) == plain
    assert ahbm.run(bytes_per_rank=np.int32(1024), overrides={"system.sips.count": 4}, seed=np.uint8(0)) == plain
