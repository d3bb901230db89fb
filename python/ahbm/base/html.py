"""Small tables and fragments for notebooks: escaped, without scripts, styles sheets or network; for light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MOST_ROWS = 60
"""Rows of a table that are shown."""
_CELL = "padding:2px 10px;border-bottom:1px solid rgba(128,128,128,.35);vertical-align:top;white-space:pre-wrap"


def _escaped(text: str) -> str:
    # Few look at a notebook, and the module brings the names of all entities.
    from html import escape

    return escape(text)


def table(caption: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; numbers stand at the right. Beyond `MOST_ROWS` rows, the last line says how many are left out."""
    head = "".join(f'<th style="{_CELL};text-align:left">{_escaped(name)}</th>' for name in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:MOST_ROWS])
    if len(rows) > MOST_ROWS:
        more = f"and {len(rows) - MOST_ROWS} more rows"
        body += f'<tr><td style="{_CELL};text-align:left" colspan="{len(header)}">{more}</td></tr>'
    return _framed(caption, f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>")


def facts(caption: str, pairs: Iterable[tuple[str, object]]) -> str:
    """A table of two columns, without a header."""
    body = "".join(
        f'<tr><th style="{_CELL};text-align:left">{_escaped(name)}</th>{_cell(value, "left")}</tr>'
        for name, value in pairs
    )
    return _framed(caption, f"<tbody>{body}</tbody>")


def _framed(caption: str, content: str) -> str:
    style = "border-collapse:collapse;color:inherit;background:transparent"
    title = f'<div style="margin:4px 0;white-space:pre-wrap">{_escaped(caption)}</div>'
    return f'<div style="overflow-x:auto;color:inherit">{title}<table style="{style}">{content}</table></div>'


def _cell(value: object, align: str = "") -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    text = "" if value is None else f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if number else value
    return f'<td style="{_CELL};text-align:{align or ("right" if number else "left")}">{_escaped(str(text))}</td>'
