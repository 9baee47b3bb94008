"""Write tables, sentences and pictures as HTML for notebook cells."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape

from ipusim.api import analysis
from ipusim.app.render.tables import Table
from ipusim.base.units import format_seconds


def verdict(times: analysis.RunTimes) -> str:
    """Return a run in a line: time per weight update (inference: per execution), throughput, bubble."""
    rates = times.throughput
    return (
        f"{format_seconds(rates.weight_update_period_s)} per {times.period}, "
        f"{rates.words}, "
        f"bubble {times.bubble.idle_fraction:.1%} (idle / (IPUs x makespan))"
    )


def table(content: Table) -> str:
    """Return a table; number columns are flush right, empty headers are left out."""
    sides = ["right" if content.has_numbers(column) else "left" for column in range(len(content.header))]
    head = f"<thead>{_row('th', content.header, sides)}</thead>" if any(content.header) else ""
    rows = "".join(_row("td", row, sides) for row in content.rows)
    caption = f'<caption style="text-align: left"><b>{escape(content.title)}</b></caption>'
    return f"<table>{caption}{head}<tbody>{rows}</tbody></table>"


def _row(tag: str, cells: Sequence[str], sides: Sequence[str]) -> str:
    cells_html = (
        f'<{tag} style="text-align: {side}; white-space: pre-wrap">{escape(cell)}</{tag}>'
        for cell, side in zip(cells, sides, strict=True)
    )
    return f"<tr>{''.join(cells_html)}</tr>"


def paragraph(text: str) -> str:
    """Return a sentence as paragraph; empty for an empty sentence."""
    return f"<p>{escape(text)}</p>" if text else ""


def picture(png: bytes, text: str) -> str:
    """Return an inlined PNG; ``text`` is its alternative text."""
    return f'<img alt="{escape(text)}" style="max-width: 100%" src="data:image/png;base64,{b64encode(png).decode()}">'
