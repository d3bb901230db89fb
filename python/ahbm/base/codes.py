"""Names of the error codes on which decisions rest, and what there is to say about any code.

`ahbm._core.codes()` lists every code with its meaning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ahbm import errors
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


@dataclass(frozen=True)
class Family:
    """The codes of one letter."""

    subject: str
    """The heading of the family in docs/errors.md."""
    page: str
    """The page that explains what the errors are about."""
    advice: str
    """What to do about any of them."""


FAMILIES = {
    "C": Family(
        "configuration", "machine-model", "Correct the argument, key or module that it names; `ahbm list` has names."
    ),
    "T": Family(
        "topology", "machine-model", "Correct the key at the line that it names; `ahbm topology` shows a machine."
    ),
    "K": Family(
        "kernels", "writing-an-algorithm", "Correct the line of the kernel that it names, by the module contract."
    ),
    "L": Family("lints", "writing-an-algorithm", "Correct what it names before the program can run; nothing has run."),
    "D": Family("deadlocks", "check", "Follow the cycle: each side that it names waits for the next one."),
    "V": Family(
        "data", "check", "Look for the first contribution that is lost or comes twice; `ahbm check` names lines."
    ),
    "B": Family("budgets", "machine-model", "Ask for less, or raise the limit that it names."),
    "U": Family("unsupported", "imports", "Do without what it names: it does not exist here."),
    "X": Family("ranks", "torch", "Compare the calls of the ranks that it names: they must agree."),
    "I": Family("interruptions", "quick-start", "Start it again; the message says how far it came."),
    "F": Family("files", "imports", "Correct the file at the place that it names, or write it again."),
    "R": Family("regressions", "compare", "Find what changed with `ahbm compare`, or renew the baseline."),
    "A": Family(
        "programs of the languages for algorithms", "authoring", "Correct the line of the script that it names."
    ),
    "Z": Family("defects of AHBM", "errors", "Report it, with the command that led to it: it is not your mistake."),
}
"""Letter of a code -> its family, in the order of docs/errors.md."""


@dataclass(frozen=True)
class Explained:
    """What there is to say about a code."""

    code: str
    meaning: str
    error: str
    """Name of the class in `ahbm.errors`."""
    exit_code: int
    about: str
    """What is wrong in all errors of the class."""
    advice: str
    page: str
    """Where docs/errors.md has it, and the page on its subject."""

    def __str__(self) -> str:
        return (
            f"{self.code}: {self.meaning}\n"
            f"  class   {self.error}, exit code {self.exit_code}: {self.about}\n"
            f"  advice  {self.advice}\n"
            f"  more    {self.page}"
        )


def is_code(text: str) -> bool:
    """Whether this is written as a code is, with or without its prefix."""
    return re.fullmatch(r"(AHBM-)?[A-Z][0-9]{3}", text.upper()) is not None


def explained(text: str) -> Explained:
    """A code, with or without its prefix, from the registry. Raises ConfigError (AHBM-C144) for an unknown one."""
    from ahbm._core import codes

    known = dict(codes())
    code = f"AHBM-{text.upper().removeprefix('AHBM-')}"
    if code not in known:
        near = sorted(known, key=lambda other: (other[5] != code[5], abs(int(other[6:]) - int(code[6:]))))
        raise ConfigError("AHBM-C144", f"there is no code {code}", hint=f"did you mean {' or '.join(near[:3])}?")
    letter = code[5]
    kind, family = errors.FAMILIES.get(letter, errors.AhbmError), FAMILIES[letter]
    about = (kind.__doc__ or "").partition("\n")[0] if letter in errors.FAMILIES else "A defect of AHBM."
    anchor = f"{letter}-{family.subject}".lower().replace(" ", "-")
    more = f"docs/errors.md#{anchor}, docs/{family.page}.md"
    return Explained(code, known[code], kind.__name__, kind.exit_code, about, family.advice, more)
