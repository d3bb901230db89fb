"""A topology by its links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

Switch: TypeAlias = tuple[list[int], list[int], float, str]
"""Sources, destinations, bandwidth, name."""


class Topology:
    """`links[dst][src]` is the bandwidth of a link in units of its author's, 0 where there is none; lists or dicts.

    `switches` bound the bandwidth of groups of links. Raises ValueError for a switch without bandwidth.
    """

    def __init__(self, name: str, links: Sequence[Any], switches: Sequence[Switch] = ()) -> None:
        for _, _, bandwidth, switch in switches:
            if bandwidth <= 0:
                raise ValueError(f"Switch {switch} has a bandwidth of {bandwidth}, which is not positive")
        self.name, self.links, self.switches = name, links, list(switches)

    def link(self, src: int, dst: int) -> Any:
        """The bandwidth from `src` to `dst`."""
        return self.links[dst][src]

    def num_nodes(self) -> int:
        """The number of ranks."""
        return len(self.links)

    def nodes(self) -> range:
        """The ranks."""
        return range(len(self.links))

    def sources(self, dst: int) -> Iterator[int]:
        """Ranks with a link to `dst`."""
        return (src for src in self.nodes() if self.link(src, dst) > 0)

    def destinations(self, src: int) -> Iterator[int]:
        """Ranks to which `src` has a link."""
        return (dst for dst in self.nodes() if self.link(src, dst) > 0)

    def bandwidth_constraints(self) -> Iterator[Switch]:
        """Every link and switch: sources, destinations, bandwidth, name."""
        for dst in self.nodes():
            for src in self.sources(dst):
                yield [src], [dst], self.link(src, dst), f"{src}→{dst}"
        yield from self.switches
