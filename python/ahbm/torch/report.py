"""What a job's collectives took."""

from __future__ import annotations

from ahbm.session import Session


def add(session: Session) -> None:
    """Takes a session's calls into the job's report."""
