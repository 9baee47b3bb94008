"""Define the errors that ipusim raises on purpose: messages name object, place, value and expected value.

SimPy rebuilds an exception from ``args`` when it leaves a process: errors keep their whole state in positional
arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

#: Approximate maximum number of characters of a word in a message; longer words quote too much of the input.
_WORD: Final = 500
#: Approximate maximum number of characters of a line in a message.
_LINE: Final = 2000
#: Approximate maximum number of lines of a message.
MOST_LINES: Final = 200
#: Approximate limit of a message about a single problem, in characters.
MOST_SHOWN_CHARACTERS: Final = 2000
#: Python's message about a number with too many digits.
_DIGITS: Final = re.compile(
    r"Exceeds the limit \((\d+) digits\) for integer string conversion(: value has \d+ digits)?"
    r"(; use sys\.set_int_max_str_digits\(\) to increase the limit)?"
)
_LONG_WORD: Final = re.compile(rf"\S{{{_WORD + 1},}}")


def printable(text: str) -> str:
    r"""Return a text with line breaks, invisible and control characters escaped as ``\x1b``."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def bounded(text: str) -> str:
    """Return a message for display, without the middle of a very long text.

    Only line feeds end lines; other unprintable characters stem from the input, and are escaped.
    """
    text = _DIGITS.sub(r"expected whole numbers of at most \1 digits, got one of more", text)
    text = "\n".join(map(printable, text.split("\n")))
    if len(text) <= _WORD:
        return text
    lines = _LONG_WORD.sub(lambda word: without_middle(word[0], _WORD), text).splitlines()
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"... and {len(lines) - MOST_LINES:,} more lines"]
    return "\n".join(without_middle(line, _LINE) for line in lines)


def of_one_problem(text: str) -> str:
    """Return the message of a single problem, cut to less than a page."""
    lines = bounded(text).splitlines()
    half = MOST_SHOWN_CHARACTERS // 2
    if sum(map(len, lines)) <= MOST_SHOWN_CHARACTERS + half:
        return "\n".join(lines)
    first = _lines_within(lines, half)
    last = _lines_within(lines[:first:-1], half)
    rest_count = len(lines) - first - last
    excerpt = [*lines[:first], f"[... {rest_count:,} lines ...]", *lines[len(lines) - last :]]
    return "\n".join(without_middle(line, half) for line in excerpt)


def _lines_within(lines: Sequence[str], most: int) -> int:
    """Return how many of the first lines fit into ``most`` characters, at least 1."""
    total = 0
    for number, line in enumerate(lines):
        total += len(line) + 1
        if total > most and number:
            return number
    return len(lines)


def without_middle(text: str, most: int) -> str:
    """Return a text of more than ``most`` characters without its middle."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}[... {len(text) - 2 * half:,} characters ...]{text[-half:]}"


class IpusimError(Exception):
    """Base of the errors that ipusim raises on purpose; ``str(error)`` is the whole message.

    Long quotations lose their middle.

    Example:
        >>> import ipusim
        >>> try:
        ...     ipusim.load("nowhere")
        ... except ipusim.IpusimError as error:
        ...     print(error)
        nowhere: expected a run folder, got no such folder
    """

    def __init_subclass__(cls) -> None:
        """Bound the text of a subclass that overrides ``__str__``."""
        super().__init_subclass__()
        if "__str__" in vars(cls):
            own_text = cls.__str__
            cls.__str__ = lambda self: bounded(own_text(self))  # type: ignore[method-assign]

    def __str__(self) -> str:
        """Return the message."""
        return of_one_problem(super().__str__())

    @property
    def message(self) -> str:
        """The whole message, under the name used in TensorFlow's errors."""
        return str(self)


class OptionError(IpusimError, ValueError):
    """An invalid value of an option; front ends substitute their word for the option."""

    def __init__(self, option: str, text: str, *option_names: str) -> None:
        """Take the option's name, and a text with ``{}`` for each of ``option_names``."""
        super().__init__(option, text, *option_names)

    def worded(self, word_for: Callable[[str], str] = str) -> str:
        """Return the whole message, with options named by ``word_for``."""
        option, text, *option_names = self.args
        return bounded(f"{word_for(option)}: {text.format(*map(word_for, option_names)) if option_names else text}")

    def __str__(self) -> str:
        """Return the message with the options' plain names."""
        return self.worded()


@contextmanager
def as_option_error(option: str, *kinds: type[Exception]) -> Iterator[None]:
    """Raise an error of the given kinds as an OptionError with the same text."""
    try:
        yield
    except kinds as error:
        raise OptionError(option, str(error)) from None


class QuantityError(IpusimError, ValueError):
    """A quantity without a valid number or unit, or out of range."""


class DeviceError(IpusimError, ValueError):
    """A request for IPUs beyond the system, such as an unknown device id."""


class ModelError(IpusimError, ValueError):
    """Layers, shapes, datasets or optimizers that do not fit together."""


class UntraceableError(ModelError):
    """A user's function that removes an array from the trace for automatic differentiation."""


class FileError(IpusimError, ValueError):
    """A file with wrong content; the text gives the reason, callers the file."""


class ProgramError(IpusimError, ValueError):
    """A pipeline that breaks Graphcore's rules; the text is Graphcore's."""


class UnsupportedProgramError(ProgramError, NotImplementedError):
    """A pipeline that Graphcore has not implemented; the text is Graphcore's."""


class ProgramTypeError(ProgramError, TypeError):
    """An argument of a type that Graphcore refuses; the text is Graphcore's."""


class ConfigAttributeError(ProgramError, AttributeError):
    """An attribute missing from a configuration; the text is Graphcore's."""


class MissingNameError(ProgramError, AttributeError):
    """A TensorFlow name that is not simulated, requested as an attribute."""


class MissingImportError(ProgramError, ImportError):
    """A TensorFlow module or name that is not simulated, requested by an import."""


class ProgramStateError(ProgramError, RuntimeError):
    """A request in a wrong state, which Graphcore refuses; the text is Graphcore's."""


class EndOfDataError(ProgramStateError):
    """A session run that reads beyond the end of a dataset."""


class RemoteMemoryError(ProgramError):
    """A pipeline that offloads to missing remote memory; the text is Graphcore's."""


class CountError(ProgramError):
    """A gradient accumulation count that the schedule cannot lay out."""


class OutOfMemoryError(IpusimError):
    """A program that exceeds an IPU's memory, refused by Graphcore's compiler before the run."""


class PlanError(IpusimError):
    """A Plan that breaks a rule common to every Plan."""


class MissingTensorError(IpusimError):
    """An operation that started on an IPU without a required tensor."""


class DeadlockError(IpusimError):
    """Processes that wait with no event left; the message gives every reason."""


class NotExactError(IpusimError):
    """A run whose times need a simulation of events; the message is the reason."""


class TimelineError(IpusimError):
    """A file without a Timeline, or a request for a missing part."""


class OutputError(IpusimError):
    """A result that cannot be written to the requested place."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra from a checkout.

    No package index has ipusim.

    Example:
        >>> install_command("view")
        "pip install -e '.[view]' in a checkout of ipusim"
    """
    return f"pip install -e '.[{extra}]' in a checkout of ipusim"


class MissingPackageError(IpusimError, ImportError):
    """A missing package; the text says how to install the package."""
