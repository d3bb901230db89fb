"""`ahbm check JOB`: is a training job sound, and if not, why."""

from __future__ import annotations

from pathlib import Path

from ahbm.errors import AhbmError, BudgetError, DeadlockError, Finding, FormatError, UnsupportedError
from ahbm.job.reading import AS_IT_IS, How, read
from ahbm.job.replay import replay
from ahbm.ranks.setup import Setup
from ahbm.runs.verdict import Checked


def check_job(path: str | Path, setup: Setup, how: How = AS_IT_IS) -> Checked:
    """Reads a job and replays it, which is `correct` when every rank ends. What is wrong with it is in the answer.

    Raises ConfigError for options that do not hold.
    """
    try:
        workload = read(path, how)
    except (BudgetError, UnsupportedError) as error:
        return _answer(path, "unsupported", error.findings)
    except DeadlockError as error:
        return _answer(path, "deadlock", error.findings)
    except FormatError as error:
        return _answer(path, "malformed", error.findings)
    facts = ("job", f"{len(workload.calls)} calls", workload.ranks, workload.nodes)
    try:
        report = replay(workload, str(path), setup, how)
    except DeadlockError as error:
        return _answer(path, "deadlock", error.findings, *facts)
    except AhbmError as error:
        return _answer(path, "unsupported", error.findings, *facts)
    return _answer(path, "correct", report.warnings, *facts)


def _answer(
    path: str | Path,
    verdict: str,
    findings: tuple[Finding, ...] | list[Finding],
    form: str | None = None,
    calls: str | None = None,
    ranks: int | None = None,
    nodes: int | None = None,
) -> Checked:
    return Checked(str(path), form, calls, ranks, nodes, None, verdict, None, tuple(findings))
