"""The machine that the devices of this process are on."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Machine


@functools.cache
def machine() -> Machine:
    """The machine of the job, as the environment names it."""
    from ahbm.torch.places import options

    return options(None).sized(int(os.environ.get("WORLD_SIZE") or 1)).emulator().machine
