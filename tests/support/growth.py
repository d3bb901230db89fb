"""How the work of a call grows with its input: what a test asserts where a time would depend on the machine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

SHORT_S = 0.01
"""Processor time below which two calls are not told apart."""


def exponent(call: Callable[[int], object], small: int, large: int) -> float:
    """The power of its input's size with which the processor time of `call` grows: 1 is linear, 2 a square.

    Both times are of this process, one after the other, so the speed of the machine is in neither. No size is called
    twice, so an answer that is kept is not taken for a quick one.
    """

    def seconds(size: int) -> float:
        begun = time.process_time()
        call(size)
        return max(time.process_time() - begun, SHORT_S)

    call(small - 1)
    return math.log(seconds(large) / seconds(small)) / math.log(large / small)
