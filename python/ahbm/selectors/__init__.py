"""Choosing the algorithm of a call while a program runs: the protocol of selectors, the selectors that come with AHBM,
and what keeps the ranks of a group agreed.

May import `core` and below.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ahbm.core.choice import Choice
    from ahbm.selectors.loading import as_selector
    from ahbm.selectors.mixing import mixed
    from ahbm.selectors.nccl_model import NcclModel
    from ahbm.selectors.prior import Prior
    from ahbm.selectors.protocol import BaseSelector, Call, Comm, CostTable, Selector
    from ahbm.selectors.ranges import Range, Ranges
    from ahbm.selectors.shortlist import Shortlist
    from ahbm.selectors.static import Static
    from ahbm.selectors.tree import Tree
    from ahbm.selectors.why import explain

__all__ = [
    "BaseSelector",
    "Call",
    "Choice",
    "Comm",
    "CostTable",
    "NcclModel",
    "Prior",
    "Range",
    "Ranges",
    "Selector",
    "Shortlist",
    "Static",
    "Tree",
    "as_selector",
    "explain",
    "mixed",
]

_HOMES = {
    **dict.fromkeys(("BaseSelector", "Call", "Comm", "CostTable", "Selector"), "ahbm.selectors.protocol"),
    **dict.fromkeys(("Range", "Ranges"), "ahbm.selectors.ranges"),
    "Choice": "ahbm.core.choice",
    "NcclModel": "ahbm.selectors.nccl_model",
    "Prior": "ahbm.selectors.prior",
    "Shortlist": "ahbm.selectors.shortlist",
    "Static": "ahbm.selectors.static",
    "Tree": "ahbm.selectors.tree",
    "as_selector": "ahbm.selectors.loading",
    "explain": "ahbm.selectors.why",
    "mixed": "ahbm.selectors.mixing",
}
"""The modules of the public names, which are imported at their first use: most programs choose by none of them."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_HOMES[name]), name)
    return value
