"""The errors that ipusim raises on purpose: each names the thing, the place, the value and what would be right.

SimPy rebuilds an exception that leaves a process from its ``args``, so every
error here keeps its whole state in positional arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

#: Characters of a word, of a line, and lines of a message that are shown, about: more was quoted out of the input.
_WORD: Final = 500
_LINE: Final = 2000
MOST_LINES: Final = 200
#: Characters of a message of one problem, about.
MOST_SHOWN: Final = 2000
#: Python's own words for a number that it will not read or write.
_DIGITS: Final = re.compile(
    r"Exceeds the limit \((\d+) digits\) for integer string conversion(: value has \d+ digits)?"
    r"(; use sys\.set_int_max_str_digits\(\) to increase the limit)?"
)
_LONG_WORD: Final = re.compile(rf"\S{{{_WORD + 1},}}")


def printable(text: str) -> str:
    r"""Return a text with escapes such as ``\x1b`` for what breaks a line, is not seen or commands a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def bounded(text: str) -> str:
    """Return a message as it is shown: one that is far too long to read loses its middle.

    Its lines end at line feeds alone; whatever else is not printable was quoted out of the input, and is escaped.
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
    """Return the message of a single problem as it is shown, which is short of a page: it loses lines in its middle."""
    lines = bounded(text).splitlines()
    half = MOST_SHOWN // 2
    if sum(map(len, lines)) <= MOST_SHOWN + half:
        return "\n".join(lines)
    first = _within(lines, half)
    last = _within(lines[:first:-1], half)
    left = len(lines) - first - last
    shown = [*lines[:first], f"[... {left:,} lines ...]", *lines[len(lines) - last :]]
    return "\n".join(without_middle(line, half) for line in shown)


def _within(lines: Sequence[str], most: int) -> int:
    """Return how many of the first lines have no more than ``most`` characters: at least one."""
    total = 0
    for number, line in enumerate(lines):
        total += len(line) + 1
        if total > most and number:
            return number
    return len(lines)


def without_middle(text: str, most: int) -> str:
    """Return a text without its middle where it has more characters than ``most``."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}[... {len(text) - 2 * half:,} characters ...]{text[-half:]}"


class IpusimError(Exception):
    """Base of every error that ipusim raises on purpose; ``str(error)`` is the whole message.

    Whatever it quotes is bounded there: what is far too long loses its middle.

    Example:
        >>> import ipusim
        >>> try:
        ...     ipusim.load("nowhere")
        ... except ipusim.IpusimError as error:
        ...     print(error)
        nowhere: expected a run folder, got no such folder
    """

    def __init_subclass__(cls) -> None:
        """Bound the text of a kind of error that says itself what it is."""
        super().__init_subclass__()
        if "__str__" in vars(cls):
            said = cls.__str__
            cls.__str__ = lambda self: bounded(said(self))  # type: ignore[method-assign]

    def __str__(self) -> str:
        """Return the message."""
        return of_one_problem(super().__str__())

    @property
    def message(self) -> str:
        """The whole message, as programs ask TensorFlow's errors for it."""
        return str(self)


class OptionError(IpusimError, ValueError):
    """A value of an option that nothing can be made of; each door says it with its own word for the option."""

    def __init__(self, option: str, text: str, *others: str) -> None:
        """Take the option's name, and a text that has ``{}`` for each of the ``others``, names of options too."""
        super().__init__(option, text, *others)

    def worded(self, word_for: Callable[[str], str] = str) -> str:
        """Return the whole message, with ``word_for`` each option's name."""
        option, text, *others = self.args
        return bounded(f"{word_for(option)}: {text.format(*map(word_for, others)) if others else text}")

    def __str__(self) -> str:
        """Return the message with the names themselves."""
        return self.worded()


class QuantityError(IpusimError, ValueError):
    """A quantity that is no number with a unit of the wanted kind, or out of its range."""


class DeviceError(IpusimError, ValueError):
    """A request for IPUs that the system cannot meet (a wrong count, an unknown device id)."""


class ModelError(IpusimError, ValueError):
    """Layers, shapes, datasets or optimizers that do not fit together."""


class UntraceableError(ModelError):
    """A user's function that takes an array out of the trace which its gradient comes from."""


class FileError(IpusimError, ValueError):
    """A file that does not hold what it should; the text is the reason, and the caller names the file."""


class ProgramError(IpusimError, ValueError):
    """A pipeline that Graphcore's own rules refuse; the text is Graphcore's."""


class UnsupportedProgramError(ProgramError, NotImplementedError):
    """A pipeline that Graphcore calls not implemented; the text is Graphcore's."""


class ProgramTypeError(ProgramError, TypeError):
    """An argument of a type that Graphcore refuses; the text is Graphcore's."""


class ConfigAttributeError(ProgramError, AttributeError):
    """An attribute that a configuration does not have; the text is Graphcore's."""


class MissingNameError(ProgramError, AttributeError):
    """A name of TensorFlow's that is not simulated, asked for as an attribute."""


class MissingImportError(ProgramError, ImportError):
    """A module or name of TensorFlow's that is not simulated, asked for by an import."""


class ProgramStateError(ProgramError, RuntimeError):
    """Something asked for when it cannot be had, which Graphcore answers so; the text is Graphcore's."""


class EndOfDataError(ProgramStateError):
    """A run of a session asks for an element behind a dataset's last one."""


class RemoteMemoryError(ProgramError):
    """A pipeline that offloads to remote memory that its IPUs do not have; the text is Graphcore's."""


class CountError(ProgramError):
    """A gradient accumulation count that the schedule cannot lay out."""


class OutOfMemoryError(IpusimError):
    """A program that needs more memory than an IPU has; Graphcore's compiler refuses it before it runs."""


class PlanError(IpusimError):
    """A Plan that breaks a rule that every Plan keeps."""


class MissingTensorError(IpusimError):
    """An operation started on an IPU that does not hold a tensor that it needs."""


class DeadlockError(IpusimError):
    """Nothing is left to happen while processes still wait; the message names each and what it waits for."""


class NotExactError(IpusimError):
    """A run whose times cannot be computed without events; the message is the reason."""


class TimelineError(IpusimError):
    """A file that is no Timeline, or a part of a run that the run has not."""


class OutputError(IpusimError):
    """A result that cannot be written where it was asked for."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra; no package index has ipusim, so it is one of a checkout.

    Example:
        >>> install_command("view")
        "pip install -e '.[view]' in a checkout of ipusim"
    """
    return f"pip install -e '.[{extra}]' in a checkout of ipusim"


class MissingPackageError(IpusimError, ImportError):
    """Something that needs a package which is not installed; the text says how to install it."""
