"""The traces that runs leave: Chakra, post-execution."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm._core import Program, Timeline


def write_executed(
    program: Program | None, timeline: Timeline | None, recorded: bool, prefix: str | Path
) -> list[Path]:
    """Writes a run as a post-execution trace, `PREFIX.<rank>.et`, and returns its files.

    A timeline that was not recorded is simulated again: the same inputs give the same times. Raises ConfigError
    (AHBM-C148) when nothing was run, FormatError for files that cannot be written.
    """
    if program is None or timeline is None:
        raise ConfigError("AHBM-C148", "there was nothing to run, so there is no trace of it", hint="give a size")
    return program.write_trace(timeline if recorded else program.simulate(), prefix)
