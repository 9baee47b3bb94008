"""Read passes from logs of DeepSpeed's wall clock breakdown: timers of its pipeline engine by rank.

With ``wall_clock_breakdown`` each line has ``rank=N time (ms) |`` and timers in milliseconds, summed over the
micro-batches of an iteration: ``forward_microstep``, ``backward_microstep`` and ``step_microstep``. DeepSpeed logs on
rank 0 by default. The user therefore has to state that the logged ranks are the whole pipeline.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from ipusim.app.profiles.names import DEEPSPEED, FORWARD, UPDATE, Names
from ipusim.app.profiles.source import Source
from ipusim.app.profiles.spans import Options, Recording, Span
from ipusim.base.errors import FileError

#: Line of the breakdown.
LINE: Final = re.compile(rb"\brank=\d+ time \(ms\) \|")
_RANK: Final = re.compile(r"\brank=(\d{1,6}) time \(ms\) \|")
_TIMER: Final = re.compile(r"\|\s*([\w/-]+):\s*(\d{1,12}(?:\.\d{1,9})?)")


def read(source: Source, options: Options) -> Recording:
    """Return the passes of DeepSpeed's timers.

    Raises FileError for a log without these timers, and without a count of micro-batches from the user.
    """
    names = Names(options.names, DEEPSPEED)
    recording = Recording(
        source.path, "DeepSpeed's timers", stages_from="the times of all ranks, or a statement of DeepSpeed's stages"
    )
    steps: dict[int, int] = {}
    for number, line in source.lines():
        if not (rank_match := _RANK.search(line)):
            continue
        source.event()
        rank = int(rank_match[1])
        for name, ms in _TIMER.findall(line, rank_match.end() - 1):
            meaning = names[name]
            if meaning is None:
                recording.note_other_span(name, float(ms) * 1000)
                continue
            if not options.count:
                raise FileError(
                    f"{source.path}:{number}: expected the number of micro-batches of a line of DeepSpeed's timers, "
                    "which the line does not contain: set the option count"
                )
            steps[rank] = steps.get(rank, -1) + (meaning.activity == FORWARD)
            span = Span(meaning.activity, meaning.stage, None, str(rank), None, Fraction(ms) * 1000)
            span.rank, span.step = rank, max(steps[rank], 0)
            span.micro_batches = 1 if meaning.activity == UPDATE else options.count
            recording.add(span, name)
    names.refuse_unused(source.path, recording.names)
    if not recording.spans:
        timers = ", ".join([*recording.names][:8]) or "none"
        raise FileError(f"{source.path}: expected DeepSpeed's timers {names}, got {timers}: set wall_clock_breakdown")
    return recording
