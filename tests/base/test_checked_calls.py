"""What `checked` says of a call that failed, and what it leaves alone."""

from __future__ import annotations

from typing import TypedDict, Unpack

import pytest

from ahbm.base.arguments import checked
from ahbm.errors import ConfigError


class Fields(TypedDict, total=False):
    size: int


@checked
def called(name: str, **fields: Unpack[Fields]) -> int:
    return 1 // len(name) + int(fields.get("size", 0) + 1)


def test_an_error_that_no_argument_explains_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        called("", size=3)


def test_a_field_of_the_keyword_arguments_is_named() -> None:
    with pytest.raises(ConfigError, match=r"AHBM-C129 size must be an integer of 64 bits, not None"):
        called("a", size=None)  # type: ignore[typeddict-item]
