"""Tables of the commands, as Markdown."""

from __future__ import annotations

from ipusim.app.render.tables import Table


def markdown(table: Table) -> str:
    """Return a table as Markdown."""
    lines = [table.header, tuple("---" for _ in table.header), *table.rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
