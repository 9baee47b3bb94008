"""Read passes from logs of Megatron-LM with its timers on every rank.

The format is that of ``--timing-log-level 2 --timing-log-option all``, written by ``timers.py`` of Megatron Core 0.13
and by Megatron-LM since 2022: after ``times across ranks (ms):`` the name of each timer, followed by a line per rank. A
time is the sum over the micro-batches of an iteration. The head of a log states sizes of parallel groups as dotted
arguments, YAML, options or lines of ``initialize.py``. A line states the number of micro-batches when it is set (as
``micro-batches`` before 2024). Logs of several nodes form one log: rank 0 writes the head, the last rank the times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Final

from ipusim.app.profiles.names import MEGATRON, UPDATE, NameMeaning, Names
from ipusim.app.profiles.source import Source
from ipusim.app.profiles.spans import Fact, Facts, Options, Recording, Span
from ipusim.base.errors import FileError

#: Beginning of a block of times by rank.
_BLOCK: Final = "times across ranks (ms):"
#: Beginnings of blocks of times without ranks.
_WITHOUT_RANKS: Final = ("time across ranks (ms):", "time (ms) |")
#: Line of a timer in a block, possibly after a launcher's prefix.
_TIMER: Final = re.compile(r"(?:^|.*\s\s|\t)([a-z][\w/-]*):\s*")
_RANK: Final = re.compile(r"\brank\s+(\d{1,6}):\s+(\d{1,12}(?:\.\d{1,9})?)\s*$")
_ITERATION: Final = re.compile(r"\biteration\s+(\d{1,12})\s*/")
_ELAPSED: Final = re.compile(r"elapsed time per iteration \(ms\):\s*(\d{1,12}(?:\.\d{1,9})?)")
_BATCH: Final = re.compile(r"global batch size:\s*(\d{1,12})\b")
_COUNT: Final = re.compile(r"number of micro-?batches to constant (\d{1,9})\b")
#: Sizes and switches of the head: dotted, as YAML or as options. Equally named values of process groups and encoder
#: configurations use an equals sign or follow another word.
_ARGUMENT: Final = re.compile(
    r"(?<!\w)(?<!\w-)(?P<option>--)?(?P<name>pipeline[-_]model[-_]parallel[-_]size|tensor[-_]model[-_]parallel[-_]size|context[-_]parallel[-_]size"
    r"|virtual[-_]pipeline[-_]model[-_]parallel[-_]size|world[-_]size|data[-_]parallel[-_]size|micro[-_]batch[-_]size"
    r"|use[-_]tp[-_]pp[-_]dp[-_]mapping)(?:\s*\.{2,}\s*|\s*:\s*|(?(option)[\s=]+|(?!)))"
    r"(?P<value>\d{1,9}|True|true|False|false)\b"
)
_SWITCH: Final = re.compile(r"--use-tp-pp-dp-mapping\b(?!\s*[=.])")
#: Lines of ``initialize.py``, and the facts that they state.
_LINES: Final = {
    re.compile(r"initialized pipeline model parallel with size (\d{1,6})\b"): "pipeline_model_parallel_size",
    re.compile(r"initialized tensor model parallel with size (\d{1,6})\b"): "tensor_model_parallel_size",
    re.compile(r"using world size: (\d{1,9})\b"): "world_size",
    re.compile(r"\bdata-parallel[- ]size: (\d{1,9})\b"): "data_parallel_size",
    re.compile(r"\btensor-model-parallel[- ]size: (\d{1,6})\b"): "tensor_model_parallel_size",
    re.compile(r"\bpipeline-model-parallel[- ]size: (\d{1,6})\b"): "pipeline_model_parallel_size",
}
#: Words in lines of the head; the expressions above are tried only on lines with such a word.
_HEAD_WORDS: Final = re.compile(r"parallel|world|micro|mapping")
_BOOLEANS: Final = {"true": True, "True": True, "false": False, "False": False}
#: Facts that decide the stages of ranks.
_RUN_FACTS: Final = (
    "world_size",
    "pipeline_model_parallel_size",
    "tensor_model_parallel_size",
    "context_parallel_size",
    "use_tp_pp_dp_mapping",
)
#: Line with the number of stages, for messages.
_STAGES_FROM: Final = "a line with pipeline_model_parallel_size"
#: Maximum number of timers named in a message.
_MOST_NAMES: Final = 8


def read(sources: Iterable[Source], options: Options) -> list[Recording]:
    """Return the passes in the logs of a run.

    Several model chunks of a rank form a single stage. Raises FileError for logs without times of ranks, without counts
    of micro-batches, or with contradicting facts.
    """
    log = _Log(Names(options.names, MEGATRON), options.count)
    for source in sources:
        with source.reading():
            log.read(source)
    return log.recordings()


class _Log:
    """Collector of passes and facts from log lines."""

    def __init__(self, names: Names, count: int | None) -> None:
        self._names, self._chosen_count = names, count
        self._recordings = list[Recording]()
        self._facts = Facts()
        #: Recording, meaning, rank, milliseconds, step and micro-batches of each time.
        self._times: list[tuple[Recording, NameMeaning, int, Fraction, int, int | None]] = []
        self._timers: dict[str, None] = {}
        self._count: Fact | None = None
        self._batch: Fact | None = None
        self._without_ranks = ""
        self._step = -1
        self._elapsed = Fraction(0)
        self._end_block()

    def _end_block(self) -> None:
        """End a block of times."""
        self._in_block, self._timer, self._next_timer, self._last_rank = False, "", "", -1
        #: Line of each time in the block, by timer and rank.
        self._places: dict[tuple[str, int], str] = {}

    def read(self, source: Source) -> None:
        """Read one log."""
        self._end_block()
        self._recordings.append(Recording(source.path, "Megatron-LM's timers", stages_from=_STAGES_FROM))
        for number, line in source.lines():
            place = f"{source.path}:{number}"
            if _BLOCK in line:
                self._end_block()
                self._in_block, self._step = True, self._step + 1
                self._note_batch()
            elif any(words in line for words in _WITHOUT_RANKS):
                self._end_block()
                self._without_ranks = self._without_ranks or place
            elif _ITERATION.search(line):
                self._end_block()
                if elapsed := _ELAPSED.search(line):
                    self._elapsed += Fraction(elapsed[1]) * 1000
                if batch := _BATCH.search(line):
                    self._batch = Fact(int(batch[1]), place)
            elif self._in_block and (rank_match := _RANK.search(line)):
                source.event()
                self._note_time(int(rank_match[1]), Fraction(rank_match[2]), place)
            elif self._in_block and (timer := _TIMER.fullmatch(line)):
                self._next_timer = timer[1]
            elif _HEAD_WORDS.search(line):
                self._note_head(line, place)

    def _note_head(self, line: str, place: str) -> None:
        """Collect the facts in a line of the head."""
        facts = self._facts
        if match := _COUNT.search(line):
            self._count = Fact(int(match[1]), place)
        values = {key: match[1] for expression, key in _LINES.items() if (match := expression.search(line))}
        if not values:
            values = {match["name"].replace("-", "_"): match["value"] for match in _ARGUMENT.finditer(line)}
        if _SWITCH.search(line):
            values["use_tp_pp_dp_mapping"] = "True"
        for key, text in values.items():
            value = _BOOLEANS[text] if text in _BOOLEANS else int(text)
            if (value is True or value is False) == (key == "use_tp_pp_dp_mapping") and (value or value is False):
                facts.state(key, value, place)

    def _note_time(self, rank: int, ms: Fraction, place: str) -> None:
        """Collect the time of a rank.

        The name of a timer takes effect only when the rank numbers start again, since lines of other programs may look
        like names.
        """
        if self._next_timer and (rank <= self._last_rank or not self._timer):
            self._timer, self._next_timer, self._last_rank = self._next_timer, "", -1
            if len(self._timers) < 1 << 10:
                self._timers[self._timer] = None
        if not self._timer:
            return
        earlier = self._places.setdefault((self._timer, rank), place)
        if earlier != place:
            raise FileError(
                f"{place}: expected one time of rank {rank} for {self._timer} in an iteration, got a second time after "
                f"{earlier}"
            )
        self._last_rank = rank
        meaning = self._names[self._timer]
        if meaning is not None and ms:
            count = self._chosen_count or (self._count.value if self._count else None)
            self._times.append((self._recordings[-1], meaning, rank, ms, self._step, count))
        elif meaning is None:
            self._recordings[-1].note_other_span(self._timer, float(ms) * 1000)

    def _note_batch(self) -> None:
        """Compute the number of micro-batches from the global batch, which may grow.

        A log without the necessary sizes is refused if the global batch changes.
        """
        if self._batch is None or self._count is None or self._chosen_count:
            return
        sizes = [self._facts[key].value for key in ("micro_batch_size", "data_parallel_size") if key in self._facts]
        if len(sizes) < 2:
            key = f"samples in batches of {self._count.value} micro-batches (the option count states another number)"
            self._facts.state(key, self._batch.value, self._batch.place)
        elif not self._batch.value % (sizes[0] * sizes[1]):
            self._count = Fact(self._batch.value // (sizes[0] * sizes[1]), self._batch.place)

    def recordings(self) -> list[Recording]:
        """Return the collected recordings; raises FileError without passes or counts of micro-batches."""
        self._refuse_without_passes()
        for recording, meaning, rank, ms, step, count in self._times:
            if not count and meaning.activity != UPDATE:
                raise FileError(
                    f"{recording.path}: expected a line 'setting number of microbatches to constant N' before the "
                    "times, got none: set the option count to the micro-batches of an iteration"
                )
            span = Span(meaning.activity, meaning.stage, None, str(rank), None, ms * 1000)
            span.rank, span.step, span.micro_batches = rank, step, 1 if meaning.activity == UPDATE else count or 1
            recording.add(span, meaning.kind)
            if self._elapsed:
                recording.extents[str(rank)] = self._elapsed
        chunks = self._facts.get("virtual_pipeline_model_parallel_size")
        if chunks and chunks.value > 1:
            self._recordings[0].notes.append(
                f"{chunks.place}: {chunks.value} chunks of a rank are one stage here, because timers sum the chunks."
            )
        self._recordings[0].facts.add({key: fact for key, fact in self._facts.items() if key in _RUN_FACTS})
        return self._recordings

    def _refuse_without_passes(self) -> None:
        """Refuse a log without timers of passes."""
        path = self._recordings[0].path
        self._names.refuse_unused(path, self._timers)
        if self._times:
            return
        if self._timers:
            timers = ", ".join([*self._timers][:_MOST_NAMES])
            raise FileError(
                f"{path}: expected timers named {self._names}, got {timers}: log with --timing-log-level 2, or name "
                "the timers with --name PASS=NAME"
            )
        if self._without_ranks:
            reason = "times without ranks and without stages"
            raise FileError(
                f"{self._without_ranks}: expected {_BLOCK!r}, got {reason}: log with --timing-log-option all"
            )
        raise FileError(f"{path}: expected a trace, JSON, or a log of Megatron-LM with {_BLOCK!r}, got neither")
