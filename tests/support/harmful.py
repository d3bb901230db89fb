"""Values that mean harm to whatever takes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ahbm.errors import AhbmError


class Stranger:
    """Raises whatever it is asked."""

    def _refuse(self, *_: object) -> Any:
        raise RuntimeError("hostile")

    __repr__ = __str__ = __len__ = __index__ = __int__ = __float__ = __iter__ = __getitem__ = __bool__ = _refuse


_ENDLESS: list[object] = []
_ENDLESS.append(_ENDLESS)
HOSTILE = [
    *(_ENDLESS, len, [[1], [1, 2]]),
    *(None, True, -1, 0, 2**80, 1.5, float("nan"), float("inf"), np.int64(4), np.float32(2)),
    *("", "x", "1K", "01", "9" * 30, "x" * 10_000, "\x00", "\ud800", "\udcff", b"x"),
    *([], [[1], [2]], (1, "x"), {}, {"x": object()}, {1: 2}, {"x.y": np.int64(3)}),
    *(object(), Stranger(), int, lambda: None, Path("nowhere"), Path("."), Path("/dev/zero"), np.zeros(3)),
]


def escaped(name: str, call: Callable[[], object], value: object) -> list[str]:
    """Calls with a hostile `value`; the one error, told, that comes back and is not AHBM's."""
    try:
        call()
    except AhbmError as error:
        if error.code == "AHBM-Z001":  # a panic
            return [f"{name} = {value!r:.40}: {error}"]
        assert error.code
    except Exception as error:
        shown = type(value).__name__ if type(value) is Stranger else repr(value)[:40]
        return [f"{name} = {shown}: {type(error).__name__}: {error}"[:200]]
    return []
