"""Problems of a request: each with the option that has it, its value, and the values that would be right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ipusim.base.errors import IpusimError

#: Where an option stands in a request: keys and list indices from the top.
KeyPath = tuple[str | int, ...]

#: Longest value that a message shows in full, in characters.
_SHOWN: Final = 60
#: Whole numbers that no option has, nor any message writes out: Python itself refuses to write those of 4,300 digits.
MOST_NUMBER: Final = 10**_SHOWN


@dataclass(frozen=True)
class Problem:
    """One mistake in a request.

    Attributes:
        path: the option.
        text: what was expected, what was found, and what to do.
        of_key: whether the key itself is wrong, not its value.
        error: what a rule of its own raised, whose text is in ``text``; None where the problem was found otherwise.

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
        """Return the one line that a person reads."""
        line = f"{dotted(self.path)}: {self.text}" if self.path else self.text
        return " ".join(line.split())


class RequestError(IpusimError, ValueError):
    """Every problem found in a request; ``str(error)`` is one line for each.

    Args:
        problems: in the order in which they were found.

    Example:
        >>> from ipusim.api import Request, RequestError
        >>> try:
        ...     Request.from_dict({"system": {"name": "m2000"}, "steps": 0})
        ... except RequestError as error:
        ...     [problem.path for problem in error.problems]
        [('pipeline',), ('steps',)]
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        """Keep the problems in the order in which they were found, and drop repeats."""
        super().__init__(tuple(dict.fromkeys(problems)))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems, in the order in which they were found."""
        return self.args[0]  # type: ignore[no-any-return]

    def __str__(self) -> str:
        """Return one line for each problem."""
        return "\n".join(map(str, self.problems))


def dotted(path: KeyPath) -> str:
    """Return a path as ``--set`` takes it: ``('model', 'layers', 1)`` is ``model.layers.1``."""
    return ".".join(map(str, path))


def show(value: object) -> str:
    """Return a value as a person would say it in a message, shortened when long.

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
    except Exception:  # a number of too many digits in it, or what its own __repr__ raises
        is_whole = isinstance(value, int)
        text = "a whole number of thousands of digits" if is_whole else f"a value of the type {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def one_of(names: Iterable[str]) -> str:
    """Return names as an English list: ``one_of(['a', 'b', 'c']) == 'a, b or c'``."""
    *rest, last = names
    return f"{', '.join(rest)} or {last}" if rest else last
