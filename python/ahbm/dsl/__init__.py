"""Languages in which others write collective algorithms, served without their compilers.

`ahbm.dsl.mscclpp` is the MSCCL++ DSL, `ahbm.dsl.msccl` is MSCCLang. `compat()` serves both under the names that
programs import. A program that is lowered (`JSON()`, `XML()`, …) becomes a plan with the lines of its author.

May import `config` and below.
"""

from __future__ import annotations

from ahbm.dsl.compat import compat

__all__ = ["compat"]
