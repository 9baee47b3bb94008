"""Tables, sentences and pictures as HTML for notebook cells."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape

from ipusim.api import analysis
from ipusim.app.render.tables import Table
from ipusim.base.units import format_figure, format_seconds


def verdict(times: analysis.RunTimes) -> str:
    """Return a run in a line: time per weight update (inference: per execution), throughput, bubble."""
    rates, what = times.throughput, "weight update" if times.training else "execution"
    return (
        f"{format_seconds(rates.weight_update_period_s)} per {what}, "
        f"{format_figure(rates.samples_per_s)} samples/s, "
        f"bubble {times.bubble.idle_fraction:.1%} (idle / (IPUs x makespan))"
    )


def table(shown: Table) -> str:
    """Return a table; number columns are flush right, empty headers are left out."""
    sides = ["right" if shown.has_numbers(column) else "left" for column in range(len(shown.header))]
    head = f"<thead>{_row('th', shown.header, sides)}</thead>" if any(shown.header) else ""
    rows = "".join(_row("td", row, sides) for row in shown.rows)
    caption = f'<caption style="text-align: left"><b>{escape(shown.title)}</b></caption>'
    return f"<table>{caption}{head}<tbody>{rows}</tbody></table>"


def _row(tag: str, cells: Sequence[str], sides: Sequence[str]) -> str:
    drawn = (
        f'<{tag} style="text-align: {side}; white-space: pre-wrap">{escape(cell)}</{tag}>'
        for cell, side in zip(cells, sides, strict=True)
    )
    return f"<tr>{''.join(drawn)}</tr>"


def paragraph(text: str) -> str:
    """Return a sentence as paragraph; empty for an empty sentence."""
    return f"<p>{escape(text)}</p>" if text else ""


def picture(png: bytes, text: str) -> str:
    """Return an inlined PNG; ``text`` is its alternative text."""
    return f'<img alt="{escape(text)}" style="max-width: 100%" src="data:image/png;base64,{b64encode(png).decode()}">'


def shown(parts: Iterable[str | Table], png: bytes | None, text: str) -> str:
    """Return sentences and tables above a picture with alternative text ``text``."""
    drawn = [paragraph(part) if isinstance(part, str) else table(part) for part in parts]
    return f"<div>{''.join(drawn)}{'' if png is None else picture(png, text)}</div>"
