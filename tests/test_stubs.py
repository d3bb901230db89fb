"""The types of the extension module are those that it says itself, and what its file adds stays true."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from stubs import merged

MODULE = '''
from _typeshed import Incomplete, SupportsGetItem
from typing import Any, SupportsFloat, SupportsIndex

__all__ = ["Memory"]

class Memory:
    """
    Bytes.
    """
    def read(self, /, at: SupportsIndex, out: Incomplete) -> None:
        """
        Reads.

        All of it.
        """
    def sizes(self, /, of: SupportsGetItem[int, SupportsIndex], scale: SupportsFloat | SupportsIndex) -> list[int]: ...
'''
SAID = """
from numpy.typing import NDArray

class Memory:
    def read(self, at: int, out: NDArray[Any]) -> None: ...
"""


def test_what_the_module_does_not_say_is_added_and_the_rest_is_plain() -> None:
    found = merged(MODULE, SAID)
    assert "def read(self, at: int, out: NDArray[Any]) -> None:\n" in found
    assert '"""Reads.\n\n        All of it.\n        """' in found
    assert "def sizes(self, /, of: Sequence[int], scale: float) -> list[int]:" in found
    assert "from numpy.typing import NDArray" in found


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ("    def sizes(self, of: int) -> list[int]: ...\n", "Memory.sizes is said by the module itself"),
        ("    def write(self) -> None: ...\n", "there is no Memory.write"),
    ],
)
def test_what_is_said_twice_or_of_nothing_is_refused(more: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        merged(MODULE, SAID + more)
