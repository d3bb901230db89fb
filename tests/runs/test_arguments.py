"""Whatever `ahbm.run` is given: it runs, or an error of AHBM names the argument."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import ahbm
from ahbm.errors import AhbmError, ConfigError
from ahbm.runs import plans
from ahbm.runs.keywords import KEYWORDS as DESCRIBED
from ahbm.runs.keywords import Arguments
from ahbm.runs.measure import prepare

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


def test_help_and_signature_name_every_keyword() -> None:
    assert set(DESCRIBED) == set(Arguments.__annotations__)
    for function in (ahbm.run, prepare, plans.run):
        parameters = inspect.signature(function).parameters
        assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        for name, (default, meaning) in DESCRIBED.items():
            assert parameters[name].default == default
            assert f"\n{name}: {meaning.split()[0]}" in (function.__doc__ or "")


def test_a_default_is_what_a_call_without_the_keyword_takes(here: Any) -> None:
    defaults: dict[str, Any] = {name: default for name, (default, _) in DESCRIBED.items()}
    for collective in ("all_reduce", "broadcast", "send_recv"):
        assert ahbm.run(collective, topology="npu_ring_8", **defaults) == ahbm.run(collective, topology="npu_ring_8")


@pytest.mark.parametrize("function", [ahbm.run, prepare])
def test_a_keyword_that_there_is_not_is_refused(function: Any, here: Any) -> None:
    with pytest.raises(ConfigError, match=r"AHBM-C129 .* 'byte_per_rank'\n.*did you mean bytes_per_rank"):
        function(byte_per_rank=64)


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
