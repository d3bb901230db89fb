"""What authors pass as numbers and as members of the enumerations, read."""

from __future__ import annotations

from operator import index
from typing import TypeVar

from ahbm.dsl.mscclpp.internal.enums import BufferType, ReduceOperationType, SyncType
from ahbm.dsl.mscclpp.internal.faults import fault
from ahbm.errors import AhbmError

_Member = TypeVar("_Member", BufferType, ReduceOperationType, SyncType)

SHOWN = 60
"""Characters of a refused value that an error shows."""
SPACES = tuple(BufferType)
FUNCTIONS = tuple(ReduceOperationType)


def unusable(value: object, wanted: str) -> AhbmError:
    """AHBM-A103, a TypeError: `wanted` is needed, and not `value`."""
    try:
        shown = repr(value)[:SHOWN]
    except Exception:  # an author's own class
        shown = "that"
    hint = "a / b is a float even where it has no fraction; a // b is an integer" if isinstance(value, float) else None
    return fault("TypeError", "AHBM-A103", f"{wanted} is needed here, not {shown}", hint)


def exact(value: object) -> int:
    """An integer of 64 bits; a float is none, whatever its value."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise unusable(value, "an integer") from None
    if not -(2**63) <= number < 2**64:
        raise unusable(value, "an integer")
    return number


def whole(value: object) -> int:
    """An integer; one that does not fit is out of every range."""
    return value if type(value) is int and -(2**63) <= value < 2**63 else min(exact(value), 2**63 - 1)


def natural(what: str, value: object) -> int:
    """An integer of 32 bits that is not negative."""
    number = exact(value)
    if not 0 <= number < 2**32:
        raise fault("ValueError", "AHBM-A105", f"{what} is {number}: it must not be negative")
    return number


def member(kind: type[_Member], value: object) -> _Member:
    """A member of an enumeration, or the one with the name that `value` says."""
    if isinstance(value, kind):
        return value
    if isinstance(value, str) and value in kind.__members__:
        return kind[value]
    raise unusable(value, f"a {kind.__name__}")


def sync(value: object) -> int:
    """The value of a `SyncType`."""
    return member(SyncType, value).value


def function(value: object) -> int:
    """The number of a `ReduceOperationType`."""
    return FUNCTIONS.index(member(ReduceOperationType, value))


def space(value: object) -> int:
    """The number of a `BufferType`."""
    return SPACES.index(member(BufferType, value))
