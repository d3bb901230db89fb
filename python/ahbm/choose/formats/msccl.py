"""MSCCL-IR files as rules: each says the sizes (`minBytes` to `maxBytes`) and the number of ranks that it is for.

The executor takes the first file that fits a call; for every other call NCCL chooses. What is written here are the
plans themselves, by `ahbm.choose.files`.
"""

from __future__ import annotations

from pathlib import Path

from ahbm.base.rules import Rule, Span
from ahbm.choose.formats.format import Read
from ahbm.choose.names import MSCCL
from ahbm.choose.rules import bounded, unreached
from ahbm.config.reading import PLAIN
from ahbm.errors import FormatError
from ahbm.source.plan import read as read_plan

NAME = "msccl"


def files(path: Path) -> list[Path]:
    """The files of a folder in the order of their names; a file itself. Raises FormatError (AHBM-F189) for none."""
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.xml"))
    if not found:
        raise FormatError("AHBM-F189", f"{path} has no MSCCL-IR files", hint="a folder of .xml files, or one file")
    return found


def read(path: Path) -> Read:
    """The rules of a file or of a folder of files; an algorithm is the path of its file. Raises what reading a plan
    raises, and BudgetError (AHBM-B214)."""
    rules = []
    for file in files(path):
        plan = read_plan(str(file), PLAIN)
        least, most = plan.sizes
        rules.append(Rule(plan.collective, str(file), Span(least, most), Span(plan.ranks, plan.ranks), line=1))
    found = bounded(rules, str(path))
    return Read(NAME, MSCCL, found, tuple(unreached(found, str(path))))
