"""The record of every reader: spans, and the facts that a file states of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from ipusim.api import hardware, runs
from ipusim.app.profiles.names import Called
from ipusim.base.errors import FileError

#: Spans of passes in a file at most.
MOST: Final = 1 << 20
#: Microseconds of a pass at most: a scenario takes no more cycles, on the machine that an import begins with.
LONGEST_US: Final = runs.MOST_CYCLES * 1_000_000 // int(hardware.GC200.clock_hz)
#: Most names that a recording holds beside passes.
_REMEMBERED: Final = 4096
#: Facts in words, by their keys.
_FACTS: Final = {
    "world_size": "ranks",
    "pipeline_model_parallel_size": "pipeline stages",
    "tensor_model_parallel_size": "tensor-parallel ranks",
    "context_parallel_size": "context-parallel ranks",
    "virtual_pipeline_model_parallel_size": "chunks of the model on a rank",
}


@dataclass(slots=True)
class Span:
    """One measurement: a pass or an update, from its start to its end.

    Attributes:
        what: a pass, the update or an overlapped pair, as in ``names.py``.
        stage: the stage's name, or its number as text; empty if only the rank says.
        micro_batch: number of the micro-batch; None if the name does not say.
        process: the process in its file, and the thread too if each thread is a rank.
        thread: the thread or stream.
        start_us: start in microseconds of the file's clock; None if only the length was measured.
        us: length in microseconds; start plus length is the end.
        waited_us: part of the length that was spent in receives, or in updates inside a backward pass.
        recomputed_us: part of the length that was spent in forward passes inside a backward pass.
        micro_batches: micro-batches whose sum the length is.
        step: number of the weight update before which the span lies, from 0 in each file.
        rank: number of the process among all files; -1 before it is known.
        kind: the name with ``#`` for each number.
        is_part: whether the span is one of several parts of a pass.
    """

    what: str
    stage: str
    micro_batch: int | None
    process: str
    thread: str
    start_us: Fraction | None
    us: Fraction
    waited_us: Fraction = Fraction(0)
    recomputed_us: Fraction = Fraction(0)
    micro_batches: int = 1
    step: int = 0
    rank: int = -1
    kind: str = ""
    is_part: bool = False

    @classmethod
    def of(
        cls, called: Called, micro_batch: int | None, process: str, thread: str, start_us: Fraction | None, us: Fraction
    ) -> Span:
        """Return the span of a name's meaning."""
        span = cls(called.what, called.stage, micro_batch, process, thread, start_us, us)
        span.kind, span.is_part = called.kind, called.is_part
        return span

    @property
    def pass_us(self) -> Fraction:
        """Microseconds of one micro-batch, without waits."""
        return (self.us - self.waited_us) / self.micro_batches


@dataclass(frozen=True)
class Fact:
    """A value that a file states.

    Attributes:
        value: the value.
        place: file, and line or key, that states it.
    """

    value: Any
    place: str

    @property
    def short_place(self) -> str:
        """The place without the folder of its file."""
        return self.place.rpartition("/")[2]


class Facts(dict[str, Fact]):
    """Facts by keys; a fact has one value in all files."""

    def state(self, key: str, value: Any, place: str) -> None:
        """Add a fact; raises FileError that names both places if another one states a different value."""
        stated = self.setdefault(key, Fact(value, place))
        if stated.value != value:
            raise FileError(
                f"{place}: expected {runs.show(stated.value)} {_FACTS.get(key, key)}, as {stated.place} says, got "
                f"{runs.show(value)}"
            )

    def add(self, others: Mapping[str, Fact]) -> None:
        """Add facts of another file; raises as :meth:`state` does."""
        for key, fact in others.items():
            self.state(key, fact.value, fact.place)


@dataclass(frozen=True)
class Options:
    """Statements of a person about files.

    Attributes:
        names: rules as :class:`~ipusim.app.profiles.names.Names` takes them.
        count: micro-batches behind a weight update; None if files say it.
        parts: spans in a pass that is made of parts; None if a pass ends where another begins.
    """

    names: Sequence[str] = ()
    count: int | None = None
    parts: int | None = None


@dataclass
class Recording:
    """The contents of one file.

    Attributes:
        path: the file.
        tool: the program that measured.
        spans: passes and updates.
        facts: facts of the whole run, such as ``world_size``.
        ranks: stated ranks by process.
        order: sort indices of processes without a rank.
        names: microseconds of spans that are in no pass, by name; the first few thousand names.
        extents: microseconds from the first to the last event of each process.
        notes: sentences for a person.
        stages_from: words for the line that would state the number of stages; empty if a rank may be a stage.
    """

    path: Path
    tool: str
    spans: list[Span] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)
    ranks: dict[str, Fact] = field(default_factory=dict)
    order: dict[str, int] = field(default_factory=dict)
    names: Counter[str] = field(default_factory=Counter)
    extents: dict[str, Fraction] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    stages_from: str = ""

    def add(self, span: Span, name: str) -> None:
        """Add a span called ``name``; raises FileError for a length or a number of spans that no scenario takes."""
        if not 0 <= span.us / span.micro_batches <= LONGEST_US:
            self.refuse_length(float(span.us / span.micro_batches), name)
        if len(self.spans) >= MOST:
            raise FileError(f"{self.path}: expected at most {MOST:,} passes, got more: profile fewer steps")
        self.spans.append(span)

    def refuse_length(self, us: float, name: str) -> None:
        """Raise FileError for a length of a pass called ``name`` that no scenario takes."""
        raise FileError(
            f"{self.path}: expected passes of at most {LONGEST_US:,} us, got a dur of {runs.show(us)} us of the event "
            f"{runs.show(name)}"
        )

    def pass_by(self, name: str, us: float = 0) -> None:
        """Note the length of a span that is in no pass."""
        if name in self.names or len(self.names) < _REMEMBERED:
            self.names[name] += int(us) + 1
