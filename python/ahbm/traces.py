"""The traces that runs leave: Chakra, post-execution, and timelines to look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ahbm._core import check_timeline_name
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


def check_name(path: str | Path | None) -> None:
    """Raises ConfigError (AHBM-C149) for the name of a file, if any, that no timeline can be written to."""
    if path is not None:
        check_timeline_name(path)


def write_timeline(program: Program | None, path: str | Path) -> int:
    """Writes a run of `program` as a timeline, `.pftrace` for Perfetto or `.json` for Chrome, and returns how many
    slices it has. `docs/timeline.md` tells what it shows.

    The program is simulated again to know why each time is what it is: the same inputs give the same times. Raises
    ConfigError (AHBM-C148) when nothing was run and AHBM-C149 for other names, BudgetError (AHBM-B121, B122) for a run
    too long to show, FormatError for a file that cannot be written.
    """
    check_name(path)
    if program is None:
        raise ConfigError("AHBM-C148", "there was nothing to run, so there is no trace of it", hint="give a size")
    return program.simulate(record=False, detail=True).write(path)
