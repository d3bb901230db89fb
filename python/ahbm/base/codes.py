"""Names of the error codes on which decisions rest; `ahbm._core.codes()` lists every code with its meaning."""

from __future__ import annotations

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

CHECK_ENV = "AHBM_CHECK"
"""Environment variable that names the checks of what is run for the first time, and of what is lowered."""
