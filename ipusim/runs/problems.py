"""Define the problems of a request: option, wrong value, and expected values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ipusim.base.errors import IpusimError

#: Path of an option in a request: keys and list indices from the top.
KeyPath = tuple[str | int, ...]

#: Maximum length of a value shown in full, in characters.
_WIDTH: Final = 60
#: Lower bound of whole numbers that no option accepts and no message shows, as Python refuses to print more than 4,300
#: digits.
NUMBER_LIMIT: Final = 10**_WIDTH


@dataclass(frozen=True)
class Problem:
    """Mistake in a request.

    Attributes:
        path: path of the option.
        text: expected value, actual value, and advice.
        of_key: whether the key is wrong; otherwise its value is.
        error: error of the option's own rule, with its message in ``text``; None for other problems.

    Example:
        >>> from ipusim.api import Problem
        >>> print(Problem(("pipeline", "schedule"), "expected a schedule, got 'fast'"))
        pipeline.schedule: expected a schedule, got 'fast'
    """

    path: KeyPath
    text: str
    of_key: bool = False
    error: IpusimError | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the problem as one line for users."""
        line = f"{dotted(self.path)}: {self.text}" if self.path else self.text
        return " ".join(line.split())


class RequestError(IpusimError, ValueError):
    """All problems of a request; ``str(error)`` has a line for each.

    Args:
        problems: problems in order of discovery.

    Example:
        >>> from ipusim.api import Request, RequestError
        >>> try:
        ...     Request.from_dict({"system": {"name": "m2000"}, "steps": 0})
        ... except RequestError as error:
        ...     [problem.path for problem in error.problems]
        [('pipeline',), ('steps',)]
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        """Keep the problems in order of discovery, without repeats."""
        super().__init__(tuple(dict.fromkeys(problems)))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems in order of discovery."""
        return self.args[0]  # type: ignore[no-any-return]

    def __str__(self) -> str:
        """Return a line for each problem."""
        return "\n".join(map(str, self.problems))


def dotted(path: KeyPath) -> str:
    """Return a path in ``--set`` format: ``('model', 'layers', 1)`` is ``model.layers.1``."""
    return ".".join(map(str, path))


def show(value: object) -> str:
    """Return a value in the words of a message, shortened if long.

    >>> show(None), show(True), show({"ipus": 4})
    ('nothing', 'true', 'a mapping of 1 key')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return f"a mapping of {len(value)} key{'' if len(value) == 1 else 's'}"
    if isinstance(value, list) and not all(isinstance(item, int | float | str) for item in value):
        return f"a list of {len(value)}"
    try:
        text = repr(value)
    except Exception:  # a number with too many digits, or an error of the value's own __repr__
        is_whole = isinstance(value, int)
        text = "a whole number of thousands of digits" if is_whole else f"a value of the type {type(value).__name__}"
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def one_of(names: Iterable[str]) -> str:
    """Join names as an English list: ``one_of(['a', 'b', 'c']) == 'a, b or c'``."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
