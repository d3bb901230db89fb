"""Which groups ranks have in each other's place, where one rank plays for all.

Every rank asks torch for the groups of all ranks, in the same order. So one rank knows them all: the groups of equally
many ranks that were made with its own, and that together are all ranks, are what the other ranks call where it calls
its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch.distributed.distributed_c10d as c10d

from ahbm.errors import UnsupportedError
from ahbm.ranks.groups import ProcessGroup
from ahbm.torch import replacing

Family = tuple[ProcessGroup, ...]
MOST = 100_000
"""Groups that a search looks at before it gives up."""


class Families:
    """The groups that ranks of a world of `size` have asked for."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._made: list[ProcessGroup] = []
        """In the order of asking."""
        self._taken: set[int] = set()
        """The places in it of those that are in a family."""
        self._known: dict[tuple[str, tuple[int, ...]], Family] = {}

    def made(self, name: str, ranks: Sequence[int]) -> None:
        """All ranks ask for the group of these ranks."""
        self._made.append(ProcessGroup(name, tuple(ranks)))

    def split(self, parent: ProcessGroup | None, parts: Sequence[tuple[str, Sequence[int]]]) -> None:
        """All ranks of a group (None: of the world) ask for its parts, of ranks of that group."""
        parents = (None,) if parent is None else self.of(parent)
        for at in range(len(parts)):
            size = len(parts[at][1])
            family = [
                ProcessGroup(name, tuple(ranks) if of is None else tuple(of.ranks[rank] for rank in ranks))
                for of in parents
                for name, ranks in parts
                if len(ranks) == size
            ]
            if self._parts([group.ranks for group in family]):
                self._keep(tuple(family))

    def of(self, group: ProcessGroup) -> Family:
        """The family of a group of this rank's. Raises UnsupportedError (AHBM-U157) where the groups make none."""
        if len(group.ranks) == self._size:
            return (group,)
        known = self._known.get((group.name, group.ranks))
        if known is None:
            known = self._keep(self._found(group))
        return known

    @property
    def known(self) -> list[Family]:
        """The families of the groups that were called."""
        return list(dict.fromkeys(self._known.values()))

    def _keep(self, family: Family) -> Family:
        for group in family:
            self._known.setdefault((group.name, group.ranks), family)
        return family

    def _found(self, group: ProcessGroup) -> Family:
        if len(group.ranks) == 1:
            return tuple(ProcessGroup(group.name, (rank,)) for rank in range(self._size))
        at = [i for i, made in enumerate(self._made) if (made.name, made.ranks) == (group.name, group.ranks)]
        found = self._in_steps(at[0]) or self._searched(at[0]) if at else None
        if found is None:
            others = len({made.ranks for made in self._made if len(made.ranks) == len(group.ranks)} - {group.ranks})
            raise UnsupportedError(
                "AHBM-U157",
                f"a call of group {group.name} of {len(group.ranks)} ranks by one rank alone: with it, {others} other "
                f"groups of as many ranks were made, and no choice of them has every one of {self._size} ranks once, "
                "so what the others call meanwhile is not known",
                hint="every rank makes the groups of all: dist.new_group for each, or a mesh of devices; or run all "
                "ranks: ahbm.torch.spawn or torchrun",
            )
        self._taken |= set(found)
        return tuple(self._made[i] for i in found)

    def _parts(self, groups: Sequence[Sequence[int]]) -> bool:
        """Whether each rank of the world is in one of the groups, which are of one size."""
        ranks = [rank for group in groups for rank in group]
        return len({len(group) for group in groups}) == 1 and sorted(ranks) == list(range(self._size))

    def _in_steps(self, at: int) -> list[int] | None:
        """Groups that were made in turn, or, in the body of a loop, each so many after the one before."""
        size = len(self._made[at].ranks)
        count = self._size // size
        if count < 2 or self._size % size:
            return None
        for step in range(1, (len(self._made) - 1) // (count - 1) + 1):
            for before in range(min(count, at // step + 1)):
                first = at - before * step
                found = list(range(first, first + count * step, step))
                if found[-1] >= len(self._made) or self._taken & set(found):
                    continue
                if self._parts([self._made[i].ranks for i in found]):
                    return found
        return None

    def _searched(self, at: int) -> list[int] | None:
        """Groups in any order: for the first rank that is in none, the first group that has it."""
        size = len(self._made[at].ranks)
        if self._size % size:
            return None
        having: dict[int, list[int]] = {}
        for i, made in enumerate(self._made):
            if len(made.ranks) == size and i not in self._taken:
                for rank in made.ranks:
                    having.setdefault(rank, []).append(i)
        covered = set(self._made[at].ranks)
        chosen: list[int] = [at]

        def choices() -> Iterator[int]:
            free = next(rank for rank in range(self._size) if rank not in covered)
            return iter([i for i in having.get(free, []) if covered.isdisjoint(self._made[i].ranks)])

        if len(covered) == self._size:
            return chosen
        stack = [choices()]
        for _ in range(MOST):
            following = next(stack[-1], None)
            if following is None:
                stack.pop()
                if not stack:
                    return None
                covered -= set(self._made[chosen.pop()].ranks)
                continue
            chosen.append(following)
            covered |= set(self._made[following].ranks)
            if len(covered) == self._size:
                return sorted(chosen)
            stack.append(choices())
        return None


def watch(playing: Callable[[], Families | None]) -> None:
    """Has torch's functions tell the rank that plays for all, if `playing` finds one, which groups are made; again is
    harmless."""
    if _watched[0]:
        return
    _watched[0] = True
    names = c10d._process_group_name

    @functools.wraps(names)
    def name_of(ranks: Sequence[int], use_hashed_name: bool) -> Any:
        name = names(ranks, use_hashed_name)
        if (families := playing()) is not None and ranks and not _splitting[0]:
            families.made(str(name), ranks)
        return name

    c10d._process_group_name = name_of
    splits: Any = getattr(c10d, "split_group", None)
    if splits is None:
        return

    @functools.wraps(splits)
    def split_group(parent_pg: Any = None, split_ranks: Any = None, *args: Any, **kw: Any) -> Any:
        families = playing()
        if families is None:
            return splits(parent_pg, split_ranks, *args, **kw)
        # Each group's ranks call it by their own name.
        named = [(str(c10d._hash_ranks_to_str(ranks)), ranks) for ranks in split_ranks or ()]
        _splitting[0] = True
        try:
            made = splits(parent_pg, split_ranks, *args, **kw)
        finally:
            _splitting[0] = False
        if named:
            parent = parent_pg or c10d._get_default_group()
            families.split(None if parent is c10d._get_default_group() else parent.members, named)
        return made

    replacing.replace(splits, split_group)


_watched = [False]
_splitting = [False]
