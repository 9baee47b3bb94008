"""Where the runs of a work tree differ from a record."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.replay.figures import OF_THE_MACHINE, PARTS
from tests.replay.record import Record, outcomes

#: Characters of a value that a line shows.
_SHOWN = 60
_ABSENT = "nothing"


@dataclass(frozen=True)
class Difference:
    """What differs of one request.

    Attributes:
        request: its name.
        first: the name of the first figure that differs, parts in the order in which one follows from the other.
        was, now: its values.
        others: how many more figures of each part differ.
    """

    request: str
    first: str
    was: Any
    now: Any
    others: Mapping[str, int]

    def __str__(self) -> str:
        """Return it in one line."""
        more = ", ".join(f"{count} of {part}" for part, count in self.others.items())
        return f"{self.request}: {self.first} was {_text(self.was)}, is {_text(self.now)}" + (
            f" (and {more})" if more else ""
        )


def difference(request: str, was: Mapping[str, Any], now: Mapping[str, Any], same_machine: bool) -> Difference | None:
    """Return what differs of a request; None where all that was recorded is the same, whatever there is beside it."""
    names = [
        name
        for name, value in was.items()
        if (name not in now or now[name] != value) and (same_machine or not part_of(name).startswith(OF_THE_MACHINE))
    ]
    names += [name for name in now if name not in was and is_failure(name)]
    if not names:
        return None
    names.sort(key=lambda name: PARTS.index(part_of(name).partition(".")[0]))
    counts = Counter(part_of(name).partition(".")[0] for name in names[1:])
    return Difference(request, names[0], was.get(names[0], _ABSENT), now.get(names[0], _ABSENT), dict(counts))


def part_of(name: str) -> str:
    """Return a figure's name without the run that it is of, where a request has several."""
    return name.rpartition(": ")[2] if name.partition(": ")[0].startswith(("pipeline ", "again")) else name


def is_failure(name: str) -> bool:
    """Tell whether a figure is what a run, or a part of what is read of it, raised."""
    return name == "ended" or name.endswith(".failed")


def compare(record: Record, jobs: int = 1) -> tuple[list[Difference], Counter[str]]:
    """Run what a record has in this work tree.

    Returns what differs, and of the figures that the record has not, in how many requests each is.
    """
    found, new = [], Counter[str]()
    present = outcomes(record.requests, draw=record.pictures, jobs=jobs)
    for request, was, now in zip(record.requests, record.figures, present, strict=True):
        differs = difference(request.name, was, now, record.same_machine)
        if differs is not None:
            found.append(differs)
        new.update({part_of(name) for name in now.keys() - was.keys() if not is_failure(name)})
    return found, new


def _text(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
