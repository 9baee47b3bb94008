"""Read the names of compared schedules, selection orders and sync modes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ipusim.api import Schedule
from ipusim.api import schedules as core_schedules
from ipusim.base.errors import OptionError, ProgramError, as_option_error
from ipusim.base.near_names import did_you_mean


def schedule_of_option(text: str, folder: Path) -> Schedule:
    """Return a schedule that the option ``schedules`` names; raises OptionError for an unknown name."""
    with as_option_error("schedules", ProgramError):
        return core_schedules.schedule_of(text, folder)


def schedule_names(texts: Sequence[str], folder: Path) -> list[str]:
    """Return the names of schedules in a request: registered names, or files.

    Args:
        texts: names or files; ``["all"]`` selects every schedule.
        folder: folder of the scenario, which holds the files.

    Raises:
        OptionError: for an unknown or repeated schedule, or none.
    """
    entries = [(text, schedule_of_option(text, folder)) for text in core_schedules.expand_names(texts)]
    names = [entry.name if entry.name == text.lower() else text for text, entry in entries]
    if not names:
        registered = ", ".join(core_schedules.names())
        raise OptionError("schedules", f"expected schedules to compare out of {registered}, got none")
    return _distinct("schedules", "schedule", names)


def names_of(option: str, noun: str, names: Sequence[str], choices: Sequence[str]) -> list[str | None]:
    """Return ``names`` in the spelling of ``choices``, ignoring case.

    Args:
        option: option with the names.
        noun: what the names stand for, in messages.
        names: names to read.
        choices: allowed names.

    Raises:
        OptionError: for an unknown or repeated name.
    """
    name_of = {name.lower(): name for name in choices}
    for name in names:
        if name.lower() not in name_of:
            hint = did_you_mean(name, choices, quoted=True)
            raise OptionError(option, f"expected a {noun} out of {', '.join(choices)}, got {name!r}{hint}")
    return [*_distinct(option, noun, [name_of[name.lower()] for name in names])]


def _distinct(option: str, noun: str, names: list[str]) -> list[str]:
    """Return ``names``; raises OptionError for a name that occurs twice."""
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise OptionError(option, f"expected each {noun} once, got {repeated!r} a second time")
    return names
