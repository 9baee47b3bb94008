"""List the text forms of results for commands, notebooks and files, without slow imports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple


class OutputForm(NamedTuple):
    """Text form of a result.

    Attributes:
        text: function from a ``Result`` to bytes.
        option: name of the option of commands, without hyphens; empty for a form of files only.
        help: printed content, for ``--help``.
    """

    text: Callable[[Any], bytes]
    option: str = ""
    help: str = ""


#: Forms of a result, by file ending.
FORMS: Final = {
    ".json": OutputForm(lambda result: result.to_json(), "json", "the results as JSON"),
    ".csv": OutputForm(lambda result: result.to_csv(), "csv", "rows of the results as CSV"),
    ".md": OutputForm(lambda result: result.to_markdown(), "markdown", "sentences and tables as Markdown"),
    ".parquet": OutputForm(lambda result: result.to_parquet()),
}
#: File endings of forms that commands print, by option.
PRINTED: Final = {form.option: ending for ending, form in FORMS.items() if form.option}
