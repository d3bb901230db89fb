"""Answers in notebooks: well-formed tables, escaped, that need no network and no script."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

import ahbm
from ahbm.base import html
from ahbm.runs.verdict import check_kernel

pytestmark = pytest.mark.usefixtures("here")

RING = {"algorithm": "ring_allreduce", "topology": "npu_ring_8", "bytes_per_rank": 1024}


class Balanced(HTMLParser):
    """Collects the text of what is well-formed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def seen(answer: Any) -> str:
    shown = answer._repr_html_()
    parser = Balanced()
    parser.feed(shown)
    parser.close()
    assert not parser.open
    # Nothing loads, runs, or fixes a colour that a dark or a light page would swallow.
    assert not re.search(r"<script|<link|https?:|src=|url\(|color:(?!inherit)|background:(?!transparent)", shown)
    return " ".join(parser.text)


def test_a_report_shows_its_numbers() -> None:
    report = ahbm.run(**RING)
    text = seen(report)
    for part in (report.algorithm, report.machine, f"{report.latency_ns:,.2f} ns", report.timeline_hash):
        assert part in text


def test_an_explanation_shows_categories_and_lines() -> None:
    explanation = ahbm.run(**RING).explain()
    text = seen(explanation)
    assert all(name in text for name in explanation.by_category)
    assert max(explanation.steps, key=lambda step: step.ps).origin in text


def test_a_synthesis_a_sweep_and_a_verdict_show_what_their_text_says() -> None:
    made = ahbm.synthesize("all_gather", topology="npu_ring_8", size=1 << 16)
    assert f"{made.time_us:,.3f} us" in seen(made)
    table = ahbm.sweep("all_gather", ["ring_allreduce"], "npu_ring_8", sizes="1K")
    assert "AHBM-C115" in seen(table)
    assert "correct" in seen(check_kernel("ring_allreduce", topology="npu_ring_8", bytes_per_rank=1024))


def test_a_machine_shows_its_drawing() -> None:
    machine = ahbm.Emulator.load("npu_ring_8").machine
    assert machine._repr_svg_() == machine.svg()
    assert ElementTree.fromstring(machine._repr_svg_()).tag.endswith("svg")


def test_tables_are_escaped_and_say_how_many_rows_they_leave_out() -> None:
    rows = [["<b>&\"'", number] for number in range(html.MOST_ROWS + 5)]

    class Shown:
        def _repr_html_(self) -> str:
            return html.table("<i>", ("<u>",) * 2, rows) + html.facts("<i>", [("<u>", "<s>"), ("none", None)])

    text = seen(Shown())
    assert "and 5 more rows" in text
    assert all(part in text for part in ("<b>&\"'", "<i>", "<u>", "<s>"))
