"""Logs of Megatron-LM with the times of its timers on every rank.

The format is that of ``--timing-log-level 2 --timing-log-option all``, as ``timers.py`` of Megatron Core 0.13 writes it
and Megatron-LM has since 2022: behind ``times across ranks (ms):`` the name of each timer, and below it a line for each
rank. A time is that of one iteration, with all its micro-batches. The number of these, and of pipeline stages, stand
among the log's first lines. Ranks of a stage follow each other, as in Megatron's usual order, whose outermost part is
the pipeline.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Final

from ipusim.api import runs
from ipusim.app.profiles.names import MEGATRON, UPDATE, Called, Names
from ipusim.app.profiles.timings import LONGEST_US, MOST, Measured, Timing
from ipusim.app.profiles.torch_trace import MOST_BYTES, unpacked
from ipusim.base.errors import FileError
from ipusim.base.files import open_file

#: Characters of a line that are looked at, and names that are remembered.
_LINE: Final = 1 << 10
_REMEMBERED: Final = 1 << 10
#: Timers that a message lists.
_LISTED: Final = 8
_BLOCK: Final = "times across ranks (ms):"
#: What logs without the times of ranks have in the place of a block.
_WITHOUT_RANKS: Final = ("time across ranks (ms):", "time (ms) |")
_TIMER: Final = re.compile(r"[a-z][\w/-]*")
_RANK: Final = re.compile(r"\brank\s+(\d{1,6}):\s+(\d{1,12}(?:\.\d{1,9})?)\s*$")
_COUNT: Final = re.compile(r"setting number of micro-batches to constant (\d{1,9})\b")
_STAGES: Final = re.compile(r"pipeline_model_parallel_size \.+ (\d{1,4})\b|pipeline-model-parallel size: (\d{1,4})\b")


def read_log(path: Path, own: Sequence[str] = (), count: int | None = None) -> Measured:
    """Return the passes of one micro-batch that a log has, whose timers ``own`` rules or Megatron's names say.

    ``count`` is the micro-batches of an iteration, by default as the log says. Where a rank has several chunks of the
    model, these are one stage.

    Raises OptionError for rules that are none; FileError for a file without times of ranks, or whose micro-batches
    are not counted; OSError for a file that cannot be read.
    """
    names = Names(own, MEGATRON)
    log = _Log()
    for number, line in enumerate(_lines(path), 1):
        log.note(line, number, names)
        if len(log.times) > MOST:
            raise FileError(f"{path}:{number}: expected at most {MOST:,} times, got more: take a part of the log")
    _refuse(path, log, names)
    count = count or log.count
    if not count:
        raise FileError(
            f"{path}: expected a line 'setting number of micro-batches to constant N', got none: say by the option "
            "count how many micro-batches an iteration has"
        )
    timings = []
    for called, rank, ms in log.times:
        if ms:
            us = ms * 1000 / (1 if called.what == UPDATE else count)
            if us > LONGEST_US:
                raise FileError(
                    f"{path}: expected passes of at most {LONGEST_US:,} us, got {runs.show(float(us))} us of "
                    f"{called.what} on rank {rank}"
                )
            timings.append(Timing(rank, called.what, called.stage, us))
    return Measured(str(path), "Megatron-LM's timers", tuple(timings), log.stages, count)


@dataclass
class _Log:
    """The contents of a log.

    Attributes:
        times: what was timed, on which rank, how many milliseconds.
        timers: all timers that have times of ranks.
        stages, count: pipeline stages, and micro-batches of an iteration, where lines say them.
        without_ranks: the first line with times that say no rank; 0 where there is none.
        timer: whose times come next; empty at the head of a block, None outside of one.
    """

    times: list[tuple[Called, int, Fraction]] = field(default_factory=list)
    timers: dict[str, None] = field(default_factory=dict)
    stages: int | None = None
    count: int | None = None
    without_ranks: int = 0
    timer: str | None = None

    def note(self, line: str, number: int, names: Names) -> None:
        """Note what the next line says."""
        if _BLOCK in line:
            self.timer = ""
        elif any(words in line for words in _WITHOUT_RANKS):
            self.timer, self.without_ranks = None, self.without_ranks or number
        elif self.timer and (of_rank := _RANK.search(line)):
            if (called := names[self.timer]) is not None:
                self.times.append((called, int(of_rank[1]), Fraction(of_rank[2])))
        elif self.timer is not None and (timer := _timer(line)):
            self.timer = timer
            if len(self.timers) < _REMEMBERED:
                self.timers[timer] = None
        else:
            self.timer = None
            if match := _COUNT.search(line):
                self.count = int(match[1])
            if match := _STAGES.search(line):
                self.stages = int(match[1] or match[2])


def _refuse(path: Path, log: _Log, names: Names) -> None:
    """Refuse a log in which no timer is a pass."""
    if log.times:
        return
    if log.timers:
        listed = ", ".join([*log.timers][:_LISTED])
        raise FileError(
            f"{path}: expected timers named {names}, got {listed}: log with --timing-log-level 2, or say "
            "with --name PASS=NAME what is what"
        )
    if log.without_ranks:
        got = "times without ranks, which say no stage"
        raise FileError(f"{path}:{log.without_ranks}: expected {_BLOCK!r}, got {got}: log with --timing-log-option all")
    raise FileError(
        f"{path}: expected a trace of torch's profiler, JSON, or a log of Megatron-LM with {_BLOCK!r}, got neither"
    )


def _timer(line: str) -> str:
    """Return the name of the timer whose times follow below a line; nothing for another line."""
    *_, name = re.split(r"[\s:]", line.rstrip().removesuffix(":"))
    return name if line.rstrip().endswith(":") and _TIMER.fullmatch(name) else ""


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a log, unpacked where gzip has packed it; lines longer than a timer's are cut."""
    with open_file(path) as file:
        stream, left, begins = unpacked(file), MOST_BYTES, True
        try:
            while part := stream.readline(_LINE):
                left -= len(part)
                if left < 0:
                    raise FileError(f"{path}: expected a smaller file, got one of more than {MOST_BYTES >> 30} GiB")
                if begins:
                    yield part.removesuffix(b"\n").decode("utf-8", "replace")
                begins = part.endswith(b"\n")
        except (EOFError, zlib.error) as error:
            raise FileError(f"{path}: expected a whole file that gzip has packed: {error}") from None
