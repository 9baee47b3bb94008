"""Define a recording, the result of every reader: spans and facts of one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from ipusim.api import hardware, runs
from ipusim.app.profiles.names import NameMeaning
from ipusim.base.errors import FileError

#: Maximum number of pass spans per file.
MOST_SPANS: Final = 1 << 20
#: Maximum length of a pass in microseconds: a scenario's limit of cycles, on the default machine of imported stages.
LONGEST_US: Final = runs.MOST_CYCLES * 1_000_000 // int(hardware.GC200.clock_hz)
#: Maximum number of names of spans outside passes in a recording.
_MOST_OTHER_NAMES: Final = 4096
#: Facts in words, by key.
_FACTS: Final = {
    "world_size": "ranks",
    "pipeline_model_parallel_size": "pipeline stages",
    "tensor_model_parallel_size": "tensor-parallel ranks",
    "context_parallel_size": "context-parallel ranks",
    "virtual_pipeline_model_parallel_size": "chunks of the model on a rank",
}


@dataclass(slots=True)
class Span:
    """Measured pass or update, from start to end.

    Attributes:
        activity: pass, weight update, or overlapped forward and backward pass; keys and words of ``names.py``.
        stage: name of the stage, or its number as text; empty if given by the rank.
        micro_batch: number of the micro-batch; None if unknown.
        process: process in its file, with the thread if threads are ranks.
        start_us: start in microseconds of the file's clock; None if only the length was measured.
        us: length in microseconds; start plus length is the end.
        subtracted_us: part of the length spent on nested receives and updates.
        recomputed_us: part of the length in forward passes inside a backward pass.
        micro_batches: number of micro-batches summed in the length.
        step: number of the next weight update, from 0 in each file.
        rank: rank of the process over every file; -1 while unknown.
        kind: name of the span in the file, with ``#`` for each number.
        is_part: whether the span is only a part of a pass.
    """

    activity: str
    stage: str
    micro_batch: int | None
    process: str
    start_us: Fraction | None
    us: Fraction
    subtracted_us: Fraction = Fraction(0)
    recomputed_us: Fraction = Fraction(0)
    micro_batches: int = 1
    step: int = 0
    rank: int = -1
    kind: str = ""
    is_part: bool = False

    @classmethod
    def from_meaning(
        cls, meaning: NameMeaning, micro_batch: int | None, process: str, start_us: Fraction | None, us: Fraction
    ) -> Span:
        """Return the span of a name's meaning."""
        span = cls(meaning.activity, meaning.stage, micro_batch, process, start_us, us)
        span.kind, span.is_part = meaning.kind, meaning.is_part
        return span

    @property
    def pass_us(self) -> Fraction:
        """Microseconds per micro-batch, without subtracted time."""
        return (self.us - self.subtracted_us) / self.micro_batches


@dataclass(frozen=True)
class Fact:
    """Value stated by a file.

    Attributes:
        value: the value.
        place: file with the line or key of the statement.
    """

    value: Any
    place: str

    @property
    def short_place(self) -> str:
        """Place without the folder of its file."""
        return self.place.rpartition("/")[2]


class Facts(dict[str, Fact]):
    """Facts by key, equal in every file."""

    def state(self, key: str, value: Any, place: str) -> None:
        """Add a fact; raises FileError with two places for contradicting values."""
        fact = self.setdefault(key, Fact(value, place))
        if fact.value != value:
            raise FileError(
                f"{place}: expected {runs.show(fact.value)} {_FACTS.get(key, key)}, as in {fact.place}, got "
                f"{runs.show(value)}"
            )

    def add(self, facts: Mapping[str, Fact]) -> None:
        """Add facts of another file; raises FileError with two places for contradicting values."""
        for key, fact in facts.items():
            self.state(key, fact.value, fact.place)


@dataclass(frozen=True)
class Options:
    """User's statements about files.

    Attributes:
        names: rules as in :class:`~ipusim.app.profiles.names.Names`.
        count: micro-batches per weight update; None if stated by files.
    """

    names: Sequence[str] = ()
    count: int | None = None


@dataclass
class Recording:
    """Contents of a file.

    Attributes:
        path: the file.
        tool: program that measured.
        spans: passes and updates.
        facts: facts of the whole run, such as ``world_size``.
        ranks: stated ranks by process.
        order: sort indices of processes without a rank.
        names: microseconds of spans outside passes, by name; the first few thousand names.
        extents: microseconds between first and last event, by process.
        notes: sentences for the user.
        stages_from: description of a line with the number of stages, for messages about missing lines;
            empty if ranks can be stages.
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
        """Add a span called ``name``. Raises FileError if the length or number of spans exceeds a scenario's limits."""
        if not 0 <= span.us / span.micro_batches <= LONGEST_US:
            self.refuse_length(float(span.us / span.micro_batches), name)
        if len(self.spans) >= MOST_SPANS:
            raise FileError(f"{self.path}: expected at most {MOST_SPANS:,} passes, got more: profile fewer steps")
        self.spans.append(span)

    def refuse_length(self, us: float, name: str) -> None:
        """Raise FileError for a pass called ``name`` beyond a scenario's greatest length."""
        raise FileError(
            f"{self.path}: expected passes of at most {LONGEST_US:,} us, got a dur of {runs.show(us)} us of the event "
            f"{runs.show(name)}"
        )

    def note_other_span(self, name: str, us: float = 0) -> None:
        """Add the length of a span outside passes, by name."""
        if name in self.names or len(self.names) < _MOST_OTHER_NAMES:
            self.names[name] += int(us) + 1  # the added 1 keeps names of spans with length 0
