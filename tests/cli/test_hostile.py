"""Random input: whatever a ccl.yaml, the command line or a kernel says, AHBM answers in its own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from ahbm.base.sizes import parse_size
from ahbm.cli.options import Files, parse_ranks
from ahbm.config.reading import parse_limits
from ahbm.errors import ConfigError
from support.hostile import TARGETS, attempt

TRIES = {"ccl": 150, "values": 60, "kernels": 60, "machines": 150, "logs": 150, "exports": 60}
TRIES |= {"tuners": 200, "schedules": 200, "dumps": 60, "graphs": 40}


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_but_our_errors_comes_back(target: str, tmp_path: Path) -> None:
    if target == "graphs":
        pytest.importorskip("infragraph")
    ended = [attempt(target, f"test/{turn}", tmp_path) for turn in range(TRIES[target])]
    assert all(end == "accepted" or end.startswith("AHBM-") for end in ended)
    # Random input that is refused at the door tries nothing behind it.
    assert ended.count("accepted") >= len(ended) // 40


@pytest.mark.parametrize("digits", ["9" * 5000, "\u0663", "\u00b2", ""])
def test_numbers_that_python_does_not_read_are_refused(digits: str) -> None:
    for ask in (
        lambda: parse_size(f"{digits}K"),
        lambda: parse_ranks(f"2,{digits}"),
        lambda: parse_limits([f"ranks={digits}"]),
        lambda: Files(slots=digits).depth,
    ):
        with pytest.raises(ConfigError, match="AHBM-C1"):
            ask()
