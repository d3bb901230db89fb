"""The main module of processes that a script under `python -m ahbm.torch` starts: the script, once more.

A spawned process imports the main module of its parent afresh. This one does before it what its parent did.
"""

from __future__ import annotations

import atexit
import os
import runpy

from ahbm.torch.__main__ import SCRIPT, activate

_serving = activate()
_serving.__enter__()
# Until then it is held: it ends what it serves when nothing refers to it.
atexit.register(_serving.__exit__, None, None, None)
globals().update(runpy.run_path(os.environ[SCRIPT], run_name=__name__))
