"""Questions to a run that has ended: the reasons of its latency, what happened inside, and its traces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from ahbm._core import check_timeline_name
from ahbm.base.arguments import checked
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm._core import Program
    from ahbm.core.limits import Bound
    from ahbm.runs.explanation import Explanation
    from ahbm.runs.inspection import Inspection
    from ahbm.runs.rivals import Alternatives


def nothing_ran() -> ConfigError:
    """The error of showing a run of nothing."""
    return ConfigError("AHBM-C148", "there was nothing to run, so there is nothing to show", hint="give a size above 0")


class Run(ABC):
    """A run whose program is known.

    Everything here simulates the program again, keeping what it needs: the same inputs give the same times. Raises
    ConfigError (AHBM-C148) when nothing was run.
    """

    @abstractmethod
    def program(self) -> Program | None:
        """The program that ran; None when there was nothing to run."""

    @property
    def beside(self) -> list[str]:
        """The notes that hold for whatever is shown of the run."""
        return []

    def _least(self) -> Bound | None:
        """The least time that any algorithm could take; None where nobody asks for it."""
        return None

    def alternatives(self) -> Alternatives | None:
        """What may be done otherwise than on another machine; None where nothing is known of it."""
        return None

    def explain(self) -> Explanation:
        """The reasons of the run's latency. Raises BudgetError (AHBM-B121) for a run with too much to explain."""
        from ahbm.runs.explanation import Explanation

        program = self._program()
        timeline = program.simulate(record=False, detail=True)
        return Explanation(program, timeline, self._least(), self.alternatives())

    def inspect(self) -> Inspection:
        """Looks into the run: its state at any time, and the history of any element whose result is known."""
        from ahbm.runs.inspection import Inspection

        program = self._program()
        return Inspection(program, program.simulate(), notes=self.beside)

    @checked
    def write_timeline(self, path: str | Path) -> int:
        """Writes a timeline, `.pftrace` for Perfetto or `.json` for Chrome, and returns how many slices it has.
        `docs/timeline.md` tells what it shows.

        Raises ConfigError (AHBM-C149) for other names, BudgetError (AHBM-B121, B122) for a run too long to show,
        FormatError (AHBM-F102) for a file that cannot be written.
        """
        check_timeline_name(path)
        return self._program().simulate(record=False, detail=True).write(path)

    @checked
    def write_trace(self, prefix: str | Path) -> list[Path]:
        """Writes a Chakra trace, `PREFIX.<rank>.et`, with the time that every operation took; returns its files.

        Raises FormatError for files that cannot be written.
        """
        program = self._program()
        return program.write_trace(program.simulate(), prefix)

    def _program(self) -> Program:
        program = self.program()
        if program is None:
            raise nothing_ran()
        return program
