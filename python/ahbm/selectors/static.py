"""Always the same algorithm, for each collective."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ahbm.base.arguments import shown
from ahbm.base.knobs import KNOBS
from ahbm.core.choice import SELECTOR, Choice
from ahbm.errors import ConfigError
from ahbm.selectors.files import digest
from ahbm.selectors.protocol import BaseSelector, Call, CostTable


def choice_of(one: object) -> Choice:
    """A choice of a selector that is written down: a name, or a mapping of `algorithm` and knobs; a Choice is one.

    Raises ConfigError (AHBM-C181).
    """
    if isinstance(one, Choice):
        return one
    if isinstance(one, str):
        return Choice(SELECTOR, one)
    if isinstance(one, Mapping) and isinstance(one.get("algorithm"), str) and one.keys() <= {"algorithm", *KNOBS}:
        return Choice(SELECTOR, **one)
    raise ConfigError("AHBM-C181", f"no choice: {shown(one)}", hint="a name, or algorithm and knobs")


class Static(BaseSelector):
    """One algorithm with its knobs for all calls of a collective; other collectives are left to ccl.yaml."""

    name = "static"
    pure = True

    def __init__(self, choices: Mapping[str, str | Choice | Mapping[str, Any]]) -> None:
        """choices: by collective, as of `choice_of`, whose errors it raises."""
        self._choices = {collective: choice_of(chosen) for collective, chosen in choices.items()}

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
