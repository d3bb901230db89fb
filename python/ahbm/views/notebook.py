"""Runs in a notebook: the viewer as a widget, where anywidget is installed, else as a page in a frame.

`%load_ext ahbm` makes every report, explanation and job of a cell show itself so; `ahbm.show(run)` shows one.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ahbm.base.arguments import checked, refused
from ahbm.job.replay import JobReport
from ahbm.runs.explanation import Explanation
from ahbm.runs.report import Report
from ahbm.runs.timed import TimeReport
from ahbm.views import job_lanes, workbench
from ahbm.views.page import Page, Section

SHOWN = (Report, TimeReport, JobReport, Explanation)


def picture(run: Report | TimeReport | JobReport | Explanation) -> dict[str, Any]:
    """The data of the viewer. Raises BudgetError for a run too long to explain or to show."""
    if isinstance(run, JobReport):
        return job_lanes.of_job(run, run.explain(), f"timeline of {run.job} (simulated)")
    why = run if isinstance(run, Explanation) else run.explain()
    return workbench.of_run(why, why.machine, f"timeline of {why.name} (simulated)")


def page(run: Report | TimeReport | JobReport | Explanation) -> Page:
    """The viewer alone as a page, which needs no network and no package but jinja2."""
    shown = picture(run)
    return Page(
        shown["title"], "All times are simulated.", [Section("timeline", "Timeline", pictures=[("", shown)])], {}
    )


@cache
def _widget() -> Any:
    """The class of the widget. Raises ImportError without anywidget."""
    import anywidget
    import traitlets

    class Viewer(anywidget.AnyWidget):
        """A run; another `picture` is shown at once."""

        _esm = (Path(__file__).parent / "viewer.js").read_text(encoding="utf-8")
        picture = traitlets.Dict().tag(sync=True)

    return Viewer


@checked
def show(run: Report | TimeReport | JobReport | Explanation) -> Any:
    """A run as a notebook shows it: a widget where anywidget (the extra `notebook`) is installed, else a framed page.

    Raises ConfigError (AHBM-C129) for what is no run, and BudgetError for a run too long to explain or to show.
    """
    if not isinstance(run, SHOWN):
        raise refused("run", "a Report, TimeReport, JobReport or Explanation", run)
    if find_spec("anywidget") is not None:
        return _widget()(picture=picture(run))
    return page(run)


def load(shell: Any) -> None:
    """Makes a notebook show runs with their lanes: their tables stay above."""
    formatter = shell.display_formatter.formatters["text/html"]
    for kind in SHOWN:
        formatter.for_type(kind, _html)


def _html(run: Any) -> str:
    table = run._repr_html_() if hasattr(run, "_repr_html_") else ""
    return f"{table}{page(run)._repr_html_()}"
