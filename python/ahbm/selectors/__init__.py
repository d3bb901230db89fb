"""Choosing the algorithm of a call while a program runs: the protocol of selectors, the selectors that come with AHBM,
and what keeps the ranks of a group agreed.

May import `core` and below.
"""

from ahbm.core.selection import Choice
from ahbm.selectors.loading import as_selector
from ahbm.selectors.mixed import mixed
from ahbm.selectors.nccl_model import NcclModel
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
