"""Names of the error codes on which decisions rest, and what there is to say about any code.

`ahbm._core.codes()` lists every code with its meaning, an example and what to do.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ahbm import errors
from ahbm.base.documentation import page
from ahbm.errors import ConfigError

STUCK = "AHBM-D201"
WRONG = "AHBM-V401"
UNINITIALISED = "AHBM-V402"
RACE = "AHBM-V403"
ORDER_DEPENDENT = "AHBM-V404"
UNRECEIVED = "AHBM-V405"
ORDER_UNDECIDED = "AHBM-V406"
SIZE_MISMATCH = "AHBM-V407"
UNAWAITED = "AHBM-V410"
CALLS_INTERFERE = "AHBM-V411"
DIVERGENT = "AHBM-V412"
OUTSIDE_CALL = "AHBM-V414"
UNHELD = "AHBM-V415"
RESULT_UNDECIDED = "AHBM-U290"
CHECK_BUDGET = "AHBM-B210"
TOO_SMALL = "AHBM-L108"
LEFT_OUT = "AHBM-L100"
SIZE_UNFIT = "AHBM-F127"
UNCUT = "AHBM-U407"

RACES = (RACE, ORDER_DEPENDENT, CALLS_INTERFERE, OUTSIDE_CALL)
"""What is wrong with a program whatever it is to compute."""

CHECKS = {
    "race": (*RACES, ORDER_UNDECIDED),
    "uninit": (UNINITIALISED,),
    "leftover": (UNRECEIVED, UNAWAITED),
    "deadlock": (STUCK,),
    "result": (WRONG, SIZE_MISMATCH, UNHELD, RESULT_UNDECIDED),
    "divergence": (DIVERGENT,),
}
"""Every check of a program, and the codes of what it finds."""

UNDECIDED = (ORDER_UNDECIDED, RESULT_UNDECIDED, CHECK_BUDGET)
"""What a check could not decide: it is reported, and is no failure."""


def says_wrong(code: str | None) -> bool:
    """Whether this is the code of a wrong result, and not of what did not run."""
    return code is not None and errors.FAMILIES.get(code.removeprefix("AHBM-")[:1]) is errors.DataError


class Family(NamedTuple):
    """The codes of one letter."""

    subject: str
    """The heading of the family in docs/errors.md."""
    page: str
    """The page that explains what the errors are about."""


FAMILIES = {
    "C": Family("configuration", "machine-model"),
    "T": Family("topology", "machine-model"),
    "K": Family("kernels", "writing-an-algorithm"),
    "L": Family("lints", "writing-an-algorithm"),
    "D": Family("deadlocks", "check"),
    "V": Family("data", "check"),
    "B": Family("budgets", "machine-model"),
    "U": Family("unsupported", "imports"),
    "X": Family("ranks", "torch"),
    "I": Family("interruptions", "quick-start"),
    "F": Family("files", "imports"),
    "R": Family("regressions", "compare"),
    "A": Family("programs of the languages for algorithms", "authoring"),
    "Z": Family("defects of AHBM", "errors"),
}
"""Letter of a code -> its family, in the order of docs/errors.md."""


class Explained(NamedTuple):
    """What there is to say about a code."""

    code: str
    meaning: str
    error: str
    """Name of the class in `ahbm.errors`."""
    exit_code: int
    about: str
    """What is wrong in all errors of the class."""
    example: str
    """Something that leads to it."""
    advice: str
    """What to do about it."""
    page: str
    """Where docs/errors.md has it, and the page on its subject."""

    def __str__(self) -> str:
        return (
            f"{self.code}: {self.meaning}\n"
            f"  class   {self.error}, exit code {self.exit_code}: {self.about}\n"
            f"  example {self.example}\n"
            f"  advice  {self.advice}\n"
            f"  more    {self.page}"
        )


def is_code(text: str) -> bool:
    """Whether this is written as a code is, with or without its prefix."""
    return re.fullmatch(r"(AHBM-)?[A-Z][0-9]{3}", text.upper()) is not None


def explained(text: str) -> Explained:
    """A code, with or without its prefix, from the registry. Raises ConfigError (AHBM-C144) for an unknown one."""
    from ahbm._core import codes

    known = {row[0]: row for row in codes()}
    code = f"AHBM-{text.upper().removeprefix('AHBM-')}"
    if code not in known:
        near = sorted(known, key=lambda other: (other[5] != code[5], abs(int(other[6:]) - int(code[6:]))))
        raise ConfigError("AHBM-C144", f"there is no code {code}", hint=f"did you mean {' or '.join(near[:3])}?")
    letter = code[5]
    kind, family = errors.FAMILIES.get(letter, errors.AhbmError), FAMILIES[letter]
    about = (kind.__doc__ or "").partition("\n")[0] if letter in errors.FAMILIES else "A defect of AHBM."
    anchor = f"{letter}-{family.subject}".lower().replace(" ", "-")
    more = f"{page('errors', anchor)}, {page(family.page)}"
    _, meaning, example, advice = known[code]
    return Explained(code, meaning, kind.__name__, kind.exit_code, about, example, advice, more)
