"""The names that libraries have for collectives and algorithms, and what stands for them in the emulator.

NCCL: tuner interface v6 and the example plugin; which collective has which algorithm, `ncclTopoTuneModel` in
src/graph/tuning.cc at 5067397c. UCC: the algorithms of its transport layer `tl/ucp`, in the order of the enumerations
in src/components/tl/ucp/COLLECTIVE/COLLECTIVE.h of openucx/ucc, so that a place is a number. MSCCL++: the names under
which algorithms are registered are the user's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ahbm.selectors import nccl_model

WORDS: Mapping[str, tuple[str, ...]] = {
    "ring": ("ring",),
    "tree": ("tree", "binomial", "binary"),
    "double": ("double",),
    "nvls_tree": ("nvls_tree",),
    "nvls": ("nvls", "switch"),
    "collnet_direct": ("collnet_direct",),
    "pat": ("pat",),
    "recursive": ("recursive",),
    "halving": ("halving", "rabenseifner"),
    "pairwise": ("pairwise",),
    "bruck": ("bruck",),
}
"""What an algorithm is -> the words, one of which is part of its name between underscores."""


class Refusal(Protocol):
    """As `ahbm.selectors.nccl_model.refusal`."""

    def __call__(self, algorithm: str, protocol: str | None, nodes: float, each: float) -> str | None: ...


@dataclass(frozen=True)
class Library:
    """A library's names."""

    name: str
    collectives: Mapping[str, str]
    """This project's name -> the library's; those that its file can tune."""
    algorithms: Mapping[str, Mapping[str, str]] | None
    """Collective -> the library's name of an algorithm -> what it is, a key of `WORDS`, or "" for what nothing of the
    emulator stands for. An algorithm is the first of them that fits. None: the names are the user's, and taken as they
    are."""
    refusal: Refusal = lambda algorithm, protocol, nodes, each: None
    """What the library has instead of an algorithm that some collective of it has; None where it can run it."""
    newer: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Collective -> algorithms that only newer versions of the library have: they are read, and not written."""

    def lacks(self, collective: str, algorithm: str, protocol: str | None, nodes: float, each: float) -> str | None:
        """What the library has instead of its `algorithm` for a collective; None where it can run it. protocol, nodes,
        each: as of `ahbm.selectors.nccl_model.refusal`."""
        known = list((self.algorithms or {}).get(collective, {}))
        if known and algorithm not in known:
            *others, last = known
            has = f"{', '.join(others)} and {last}" if others else f"{last} alone"
            return f"{has} for {self.collectives[collective]}, not {algorithm}"
        return self.refusal(algorithm, protocol, nodes, each)

    def theirs(self, collective: str, algorithm: str) -> str | None:
        """The library's name of an algorithm of the emulator; None where the library has none."""
        if self.algorithms is None:
            return algorithm
        named = self.algorithms.get(collective, {})
        return next((theirs for theirs, what in named.items() if what and is_a(algorithm, what)), None)

    def ours(self, collective: str, theirs: str, candidates: Iterable[str]) -> str | None:
        """The candidate that stands for the library's algorithm; None for none.

        Of trees the double binary one, as libraries have it; kernels before synthesized schedules, then what bears the
        library's name; else the plainest of its kind.
        """
        names = list(candidates)
        if self.algorithms is None:
            return theirs if theirs in names else None
        what = self.algorithms.get(collective, {}).get(theirs, "")
        found = [name for name in names if what and self.theirs(collective, name) == theirs]

        def order(name: str) -> tuple[bool, bool, bool, bool, int, str]:
            as_theirs, made = name.startswith(f"{self.name.lower()}_"), name.startswith("synth")
            return not is_a(name, "double"), made, not as_theirs, not name.startswith(WORDS[what]), len(name), name

        return min(found, key=order, default=None)


def is_a(algorithm: str, what: str) -> bool:
    """Whether an algorithm of the emulator is of a kind (`WORDS`), by the words of its name."""
    return any(f"_{word}_" in f"_{algorithm.lower()}_" for word in WORDS[what])


_NCCL = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
_GATHERED = {"ring": "ring", "nvls": "nvls", "pat": "pat", "collnet_direct": "collnet_direct"}
NCCL = Library(
    "NCCL",
    _NCCL,
    {
        "all_reduce": {
            "nvls_tree": "nvls_tree",
            "tree": "tree",
            "ring": "ring",
            "nvls": "nvls",
            "collnet_direct": "collnet_direct",
            "collnet_chain": "",
        },
        "all_gather": _GATHERED,
        "reduce_scatter": _GATHERED,
        "broadcast": {"ring": "ring"},
        "reduce": {"ring": "ring"},
    },
    nccl_model.refusal,
)
ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
"""NCCL's, in the order of its cost table."""
PROTOCOLS = nccl_model.PROTOCOLS
"""NCCL's, in the order of its cost table."""

UCC = Library(
    "UCC",
    {
        "all_reduce": "allreduce",
        "all_gather": "allgather",
        "reduce_scatter": "reduce_scatter",
        "broadcast": "bcast",
        "reduce": "reduce",
        "all_to_all": "alltoall",
    },
    {
        "all_reduce": {
            "knomial": "recursive",
            "sra_knomial": "halving",
            "dbt": "double",
            "sliding_window": "",
            "ring": "ring",
        },
        "all_gather": {"knomial": "recursive", "ring": "ring", "neighbor": "", "bruck": "bruck", "sparbit": ""},
        "reduce_scatter": {"ring": "ring", "knomial": "recursive"},
        "broadcast": {"knomial": "tree", "sag_knomial": "", "dbt": "double"},
        "reduce": {"knomial": "tree", "dbt": "double", "srg": ""},
        "all_to_all": {"pairwise": "pairwise", "bruck": "bruck", "onesided": ""},
    },
    newer={"all_reduce": ("ring",)},
)
MSCCLPP = Library("MSCCL++", {"all_reduce": "allreduce", "all_gather": "allgather"}, None)
"""The collectives that its offline tuner knows."""
AHBM = Library("ahbm", {name: name for name in (*UCC.collectives, "gather", "scatter")}, None)
MSCCL = Library("MSCCL", AHBM.collectives, None)
