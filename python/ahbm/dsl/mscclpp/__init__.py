"""The MSCCL++ DSL, served without its compiler: what `mscclpp.language` exports, and its modules under their names.

A program records its statements; `to_json()` or `JSON()` is its plan. Where the language's own compiler does something
else than the program says, the plan is what was meant, and `Written.notes` tells the difference. `quirks` follows the
compiler.
"""

from __future__ import annotations

from ahbm.dsl.mscclpp.channel import *  # noqa: F403
from ahbm.dsl.mscclpp.channel import __all__ as _channel
from ahbm.dsl.mscclpp.collectives import *  # noqa: F403
from ahbm.dsl.mscclpp.collectives import __all__ as _collectives
from ahbm.dsl.mscclpp.general import *  # noqa: F403
from ahbm.dsl.mscclpp.general import __all__ as _general
from ahbm.dsl.mscclpp.loop import *  # noqa: F403
from ahbm.dsl.mscclpp.loop import __all__ as _loop
from ahbm.dsl.mscclpp.program import *  # noqa: F403
from ahbm.dsl.mscclpp.program import __all__ as _program
from ahbm.dsl.mscclpp.rank import *  # noqa: F403
from ahbm.dsl.mscclpp.rank import __all__ as _rank

__all__: list[str] = []
for _names in (_channel, _collectives, _general, _loop, _program, _rank):
    __all__ += [name for name in _names if name not in __all__]
