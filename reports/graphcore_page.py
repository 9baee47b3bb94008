"""Page on Graphcore's API: status of each public name in ipusim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ipusim.app.render.tables import Table
from ipusim.app.study.result import table_markdown
from reports.graphcore_names import Name, names
from reports.graphcore_status import Status, said_of, said_of_arguments

_HEAD = """\
# Graphcore's API

Check here whether ipusim supports a name that your program uses: every public name in the references of Graphcore's
TensorFlow 1 (SDK 2.1) and Keras extensions, below `tensorflow.python`. `python -m reports` makes the page from the
signatures and docstrings of `ipusim.ipu`. Arguments with a different status than their function have separate rows.
"""


def graphcore_page() -> str:
    """Return the page as Markdown."""
    entries = names()
    parts = [_HEAD, table_markdown(_summary(entries))]
    groups = list(dict.fromkeys(name.group for name in entries))
    for group in groups:
        rows = tuple(row for name in entries if name.group == group for row in _rows(name, group))
        parts.append(
            f"## {group}\n\n{table_markdown(Table(group, ('name', 'here', 'why, or what is different'), rows))}"
        )
    return "\n".join(parts)


def _summary(entries: Iterable[Name]) -> Table:
    """Count names and arguments by status."""
    of_names = Counter(said_of(name).status for name in entries)
    of_arguments = Counter(statement.status for name in entries for statement in said_of_arguments(name).values())
    header = ("", *(status.value for status in Status), "all")
    rows = tuple(
        (word, *(str(counts[status]) for status in Status), str(counts.total()))
        for word, counts in (("names", of_names), ("arguments", of_arguments))
    )
    return Table("Graphcore's API", header, rows)


def _rows(name: Name, group: str) -> Iterator[tuple[str, str, str]]:
    statement = said_of(name)
    text = f"{name.path.removeprefix(group).lstrip('.')}{name.rest}"
    yield f"`{text}`", statement.status.value, statement.why
    for argument, argument_statement in said_of_arguments(name).items():
        if argument_statement.status is not statement.status:
            yield f"- argument `{argument}`", argument_statement.status.value, argument_statement.why
