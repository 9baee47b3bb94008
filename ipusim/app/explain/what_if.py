"""The outcomes of changes, each simulated: those that can help by themselves, and those that a user requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Final

from ipusim.api import Job, Sync, Timeline, analysis, runs
from ipusim.app.explain.changes import LINKS, changes
from ipusim.app.explain.settings import settings
from ipusim.app.explain.trial import Change, ChangeTrials, WhatIf
from ipusim.app.study.trial import Trial
from ipusim.base.errors import OptionError
from ipusim.base.units import format_bytes

#: A change that gives less than this part of the time is no help.
HELP: Final = 0.001
#: The kind of a change that the user requests.
REQUESTED: Final = "asked for"
#: The best changes of which it is told which part of the time they shorten.
_EXPLAINED: Final = 3


#: The outcome of a change, with its Trial.
_Tried = tuple[WhatIf, Trial | None]


@dataclass(frozen=True)
class Together:
    """The outcome of two changes at once.

    Attributes:
        both: of both.
        sum: of what each gives by itself, as parts of the time.
    """

    both: WhatIf
    sum: float

    @property
    def adds_up(self) -> bool:
        """Whether both at once give what they give one by one, to a thousandth of the time."""
        return abs(self.both.gain - self.sum) < HELP


def what_if(job: Job, timeline: Timeline, syncs: Sequence[Sync] = ()) -> tuple[WhatIf, ...]:
    """Return the outcomes of all changes that can matter to the run of a Job, the best first.

    Changes of hardware come behind those of what runs on it. ``syncs`` are the modes that schedules are tried in, by
    default that of the run.
    """
    trial = ChangeTrials(job, timeline)
    tried = _each_plan_once([trial.of(change) for change in changes(job, syncs)])
    tried.sort(key=lambda row: (row[0].change.machine, not analysis.usable(row[0].fits), -row[0].gain))
    now: analysis.Waterfall | None = None
    explained: list[WhatIf] = []
    kinds: set[str] = set()
    for outcome, other in tried:
        helps = outcome.gain >= HELP and not outcome.change.machine and analysis.usable(outcome.fits)
        first = outcome.change.kind not in kinds and len(kinds) < _EXPLAINED
        known = outcome.change.priced is None or outcome.change.shortens is not None
        if helps and first and known and other is not None:
            kinds.add(outcome.change.kind)
            now = runs.waterfall_of(job, timeline) if now is None else now
            part = outcome.change.shortens
            cause = (part.words, now.share(part)) if part is not None else _cause(now, timeline, other)
            explained.append(replace(outcome, cause=cause))
        else:
            explained.append(outcome)
    return tuple(explained)


def _each_plan_once(tried: Sequence[_Tried]) -> list[_Tried]:
    """Return outcomes without those of other schedules on one IPU that take as long as ``single``: it is their plan."""

    def schedule_alone(row: _Tried) -> str:
        """Return the schedule that a row tries on one IPU; empty for anything else."""
        on_one = row[1] is not None and len(row[1].accepted_job.plan.ipus) == 1
        return str(row[0].change.values.get("pipeline.schedule", "")) if on_one else ""

    single = [row[0].after for row in tried if schedule_alone(row) == "single"]
    return [row for row in tried if schedule_alone(row) in ("", "single") or row[0].after not in single]


def _cause(now: analysis.Waterfall, before: Timeline, other: Trial) -> tuple[str, float]:
    """Return the part of the time per sample that becomes shorter most in another run, with its share now."""
    then, here, there = other.waterfall, _cycle(before), _cycle(other.timeline)
    saved = {part: now.cycles[part] * here - then.cycles[part] * there for part in now.cycles}
    part = max(saved, key=lambda part: saved[part])
    return part.words, now.share(part)


def _cycle(timeline: Timeline) -> Fraction:
    """Return the seconds per sample that a cycle of a run stands for."""
    return Fraction(1, max(analysis.throughput_of(timeline).samples, 1) * timeline.info.clock_hz)


def _instead(trial: ChangeTrials, outcome: WhatIf) -> str:
    """Return which rate of links does matter where another one was changed and nothing came of it; else nothing."""
    names, words = {f"rates.{name}" for name in LINKS}, outcome.change.words
    if outcome.after != outcome.before or not outcome.change.values or not outcome.change.values.keys() <= names:
        return ""

    def gain(text: str) -> float:
        return trial.of(Change(REQUESTED, text, settings(trial.job, text)), requested=True)[0].gain

    both = {other: gain(f"{words} {other}=x2") for other in sorted(names - outcome.change.values.keys())}
    best = max(both, key=lambda other: both[other], default="")
    if both.get(best, 0.0) < HELP:
        return f"{words} gives nothing: no copy of this run waits for the rate of its links."
    return (
        f"{words} gives nothing, as the slowest copies do not go at that rate: with {best}=x2 it saves "
        f"{both[best]:.1%}, of which {best}=x2 alone gives {gain(f'{best}=x2'):.1%}."
    )


def requested_changes(
    job: Job, timeline: Timeline, texts: Sequence[str]
) -> tuple[tuple[WhatIf, ...], tuple[Together, ...]]:
    """Return the outcomes of a user's own changes, in their order, and those of every two of them at once.

    Args:
        job: that they are changes of.
        timeline: its run.
        texts: of each change ``a=1 b=2``: options by their dotted names, with values, or how many times as large as
            now they would be, ``x2``.

    Raises OptionError with all that is wrong with any of them: what is no option, no value, or cannot run.
    """
    trial, outcomes, problems = ChangeTrials(job, timeline), list[WhatIf](), list[str]()
    for text in texts:
        try:
            outcome, _ = trial.of(Change(REQUESTED, text, settings(job, text)), requested=True)
        except OptionError as error:
            problems.append(error.args[1])
            continue
        if outcome.after is None:
            large = f", by {format_bytes(outcome.too_large)}" if outcome.too_large else ""
            problems.append(f"{text}: {outcome.refusal}{large}")
        outcomes.append(replace(outcome, instead=_instead(trial, outcome)))
    if problems:
        raise OptionError("what", "\n".join(problems))
    pairs = []
    for one, other in combinations(outcomes, 2):
        if not one.change.values.keys() & other.change.values.keys():
            both = Change(
                REQUESTED, f"{one.change.words} {other.change.words}", {**one.change.values, **other.change.values}
            )
            pairs.append(Together(trial.of(both, requested=True)[0], one.gain + other.gain))
    return tuple(outcomes), tuple(pairs)
