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
    result = names()
    parts = [_HEAD, table_markdown(_summary(result))]
    groups = list(dict.fromkeys(name.group for name in result))
    for group in groups:
        rows = tuple(row for name in result if name.group == group for row in _rows(name, group))
        parts.append(
            f"## {group}\n\n{table_markdown(Table(group, ('name', 'here', 'why, or what is different'), rows))}"
        )
    return "\n".join(parts)


def _summary(result: Iterable[Name]) -> Table:
    """Count names and arguments by status."""
    of_names = Counter(said_of(name).status for name in result)
    of_arguments = Counter(said.status for name in result for said in said_of_arguments(name).values())
    header = ("", *(status.value for status in Status), "all")
    rows = tuple(
        (word, *(str(counts[status]) for status in Status), str(counts.total()))
        for word, counts in (("names", of_names), ("arguments", of_arguments))
    )
    return Table("Graphcore's API", header, rows)


def _rows(name: Name, group: str) -> Iterator[tuple[str, str, str]]:
    said = said_of(name)
    shown = f"{name.path.removeprefix(group).lstrip('.')}{name.rest}"
    yield f"`{shown}`", said.status.value, said.why
    for argument, its in said_of_arguments(name).items():
        if its.status is not said.status:
            yield f"- argument `{argument}`", its.status.value, its.why
