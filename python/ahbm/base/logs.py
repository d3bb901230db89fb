"""The messages of the package to `logging.getLogger("ahbm")`; the native core logs to the same tree."""

from __future__ import annotations

import os
import sys

WARNING, INFO, DEBUG = 30, 20, 10
_warned: set[str] = set()


def log(part: str, level: int, message: str, *values: object) -> None:
    """Logs `message % values` to the logger `ahbm.<part>`.

    While `logging` has not been imported, nobody can have asked for records, and it is not imported for them.
    """
    logging = sys.modules.get("logging")
    if logging is not None:
        logging.getLogger(f"ahbm.{part}").log(level, message, *values)


def quiet() -> None:
    """What the package does is for those who ask its own loggers: a script that sets the level of all loggers asks for
    its own messages. `logging.getLogger("ahbm").setLevel(logging.INFO)` asks."""
    import logging

    if logging.getLogger("ahbm").level == logging.NOTSET:
        logging.getLogger("ahbm").setLevel(WARNING)


def notice(what: str) -> None:
    """Says `what` on rank 0's standard error, once."""
    if what not in _warned and os.environ.get("RANK", "0") == "0":
        print(f"ahbm: {what}", file=sys.stderr)
    _warned.add(what)
