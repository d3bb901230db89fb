"""Always the same algorithm, for each collective."""

from __future__ import annotations

from collections.abc import Mapping

from ahbm.core.selection import SELECTOR, Choice
from ahbm.selectors.files import digest
from ahbm.selectors.protocol import BaseSelector, Call, CostTable


class Static(BaseSelector):
    """One algorithm with its knobs for all calls of a collective; other collectives are left to ccl.yaml."""

    name = "static"
    pure = True

    def __init__(self, choices: Mapping[str, str | Choice]) -> None:
        """choices: by collective, the algorithm's name, or a Choice with knobs."""
        self._choices = {
            collective: chosen if isinstance(chosen, Choice) else Choice(SELECTOR, chosen)
            for collective, chosen in choices.items()
        }

    @property
    def fingerprint(self) -> str:
        """Digest of the choices."""
        return digest(repr(sorted((name, str(chosen)) for name, chosen in self._choices.items())))

    def get_coll_info(self, call: Call, table: CostTable) -> Choice | None:
        """See `Selector`. A masked algorithm is not chosen."""
        chosen = self._choices.get(call.collective)
        if chosen is None or chosen.name in table.reasons:
            return None
        return chosen
