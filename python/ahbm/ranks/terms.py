"""The terms that all sides of an operation must agree on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from ahbm.base.placement import DPPolicy
from ahbm.base.request import Request, Shares
from ahbm.core.choice import Choice
from ahbm.ranks.groups import ProcessGroup

NEW_GROUP = "new_group"
"""Stands where the name of a collective does; its ranks are those of the group to be made."""
KNOWN_TERMS = 1 << 12
"""Different calls whose terms are shared between all that are equal: agreement is then identity."""


class Terms(NamedTuple):
    """One rank's idea of an operation, which has to be everybody's."""

    request: Request
    """Of a send and receive, its ranks are the group's until both sides are known; of an all-to-all, whose chunks may
    differ, its count is 0 until those of all ranks are."""
    shape: tuple[int, ...] | None = None
    """Of the tensor, where more than its number of elements has to agree."""
    tag: int = 0
    """Of a send and receive."""
    note: str = ""
    """Anything else that has to be the same."""
    choice: Choice | None = None
    """The algorithm that a selector or a plan asks for; None: the one that the session's setup gives."""
    selects: bool = True
    """False: without the selectors of ccl.yaml either, for one has failed on some rank."""

    def texts(self) -> dict[str, object]:
        """In the order in which a disagreement is reported; ranks are global."""
        request, name = self.request, self.request.collective
        if name == NEW_GROUP:
            return {"collective": name, "ranks": self.note or tuple(request.ranks)}
        kind, texts = request.kind, dict[str, object](collective=name)
        if kind.reduces:
            texts["op"] = request.op
        if kind.rooted:
            texts["root"] = request.ranks[request.root]
        if request.placement is not None:
            texts["placement"] = request.placement
        if kind.paired:
            texts["tag"] = self.tag
        texts["dtype"] = request.dtype
        if request.shares is not None:
            texts["elements"] = request.shares[0]
        elif self.shape is None:
            texts["elements"] = request.size
        else:
            texts["shape"] = self.shape
        if self.note:
            texts["details"] = self.note
        if not kind.paired:
            texts["algorithm"] = str(self.choice or "the one of ccl.yaml")
        return texts


def terms(
    group: ProcessGroup,
    collective: str,
    count: int,
    dtype: str,
    op: str = "sum",
    root: int = 0,
    shape: tuple[int, ...] | None = None,
    *,
    tag: int = 0,
    note: str = "",
    placement: DPPolicy | None = None,
    tiles: int = 1,
    shares: Shares | None = None,
) -> Terms:
    """The terms of a call of `group`; see `Request` and `Terms`."""
    key = (collective, count, dtype, op, root, shape, tag, note, placement, tiles, shares)
    found: Terms | None = group.terms.get(key)
    if found is None:
        request = Request(
            collective, group.ranks, count, dtype, op, root, placement=placement, tiles=tiles, shares=shares
        )
        if len(group.terms) >= KNOWN_TERMS:
            group.terms.clear()
        # One object for all ranks, whichever of their threads comes first.
        found = group.terms.setdefault(key, Terms(request, shape, tag, note))
    return found


def with_choice(group: ProcessGroup, terms: Terms, choice: Choice, note: str = "") -> Terms:
    """`terms` of a call of `group`, with an algorithm, and with a note if it has none."""
    key = (terms, choice, note)
    found: Terms | None = group.terms.get(key)
    if found is None:
        if len(group.terms) >= KNOWN_TERMS:
            group.terms.clear()
        found = group.terms.setdefault(key, terms._replace(choice=choice, note=terms.note or note))
    return found


def unselected(terms: Terms) -> Terms:
    """`terms`, without what selectors have chosen."""
    return terms._replace(choice=None, selects=False)


@lru_cache(KNOWN_TERMS)
def between(request: Request, src: int, dst: int) -> Request:
    """A send and receive, once its global ranks are known."""
    ranks = tuple(sorted((src, dst)))
    return replace(request, ranks=ranks, src=ranks.index(src), dst=ranks.index(dst))


def exchanged(request: Request, sends: Sequence[tuple[int, ...]]) -> Request:
    """An all-to-all, once it is known how many elements each rank sends to each."""
    return replace(request, count=max(map(max, sends)), shares=tuple(sends))
