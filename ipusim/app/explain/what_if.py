"""Simulate changes: default changes that may help, and changes that a user requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from ipusim.api import Job, Sync, Timeline, analysis, runs
from ipusim.app.explain.changes import LINKS, changes
from ipusim.app.explain.settings import settings
from ipusim.app.explain.trial import Change, ChangeTrials, WhatIf, sample_seconds_per_cycle
from ipusim.app.study.trial import Trial
from ipusim.base.errors import OptionError
from ipusim.base.units import format_bytes

#: Minimum saved fraction of the time for a helpful change.
LEAST_GAIN: Final = 0.001
#: Kind of requested changes.
ON_REQUEST: Final = "asked for"
#: Number of best changes whose effect is explained by a part of the time.
_MOST_EXPLAINED_CHANGES: Final = 3


#: Outcome and Trial of a change.
_TrialRow = tuple[WhatIf, Trial | None]


@dataclass(frozen=True)
class ChangePair:
    """Outcome of two changes at once.

    Attributes:
        joint: outcome of both changes together.
        sum: sum of separate gains, as fractions of the time.
    """

    joint: WhatIf
    sum: float

    @property
    def adds_up(self) -> bool:
        """Whether the gains add up, to a thousandth of the time."""
        return abs(self.joint.gain - self.sum) < LEAST_GAIN


def what_if(
    job: Job, timeline: Timeline, syncs: Sequence[Sync] = (), waterfall: analysis.Waterfall | None = None
) -> tuple[WhatIf, ...]:
    """Try all default changes of a Job's run; returns outcomes, best first.

    Changes of hardware follow changes of software. ``syncs`` are the sync modes for schedules, by default the run's
    mode. ``waterfall`` has the parts of the run's time; missing parts are simulated if needed.
    """
    trials = ChangeTrials(job, timeline)
    # Changes are tried in reverse, so the largest count first: the recurring part of its run serves the smaller counts.
    reversed_rows = [trials.outcome_of(change) for change in reversed([*changes(job, syncs)])]
    rows = _each_plan_once(reversed_rows[::-1])
    rows.sort(key=lambda row: (row[0].change.is_hardware, not analysis.fits_or_unknown(row[0].fits), -row[0].gain))
    explained: list[WhatIf] = []
    kinds: set[str] = set()
    for outcome, changed_run in rows:
        helps = outcome.gain >= LEAST_GAIN and not outcome.change.is_hardware and analysis.fits_or_unknown(outcome.fits)
        is_next_kind = outcome.change.kind not in kinds and len(kinds) < _MOST_EXPLAINED_CHANGES
        # a change of prices has a known cause only if it names the part that it shortens
        has_cause = outcome.change.price is None or outcome.change.shortened_part is not None
        if helps and is_next_kind and has_cause and changed_run is not None:
            kinds.add(outcome.change.kind)
            waterfall = runs.waterfall_of(job, timeline) if waterfall is None else waterfall
            part = outcome.change.shortened_part
            cause = (
                (part.words, waterfall.share(part)) if part is not None else _cause(waterfall, timeline, changed_run)
            )
            explained.append(replace(outcome, cause=cause))
        else:
            explained.append(outcome)
    return tuple(explained)


def _each_plan_once(rows: Sequence[_TrialRow]) -> list[_TrialRow]:
    """Drop schedules on one IPU with the outcome of ``single``, as their plans are equal."""

    def schedule_alone(outcome: WhatIf, trial: Trial | None) -> str:
        """Return the schedule of a change to one IPU; empty for other changes."""
        on_one = trial is not None and len(trial.accepted_job.plan.ipus) == 1
        return str(outcome.change.values.get("pipeline.schedule", "")) if on_one else ""

    single = [outcome.after for outcome, trial in rows if schedule_alone(outcome, trial) == "single"]
    return [
        (outcome, trial)
        for outcome, trial in rows
        if schedule_alone(outcome, trial) in ("", "single") or outcome.after not in single
    ]


def _cause(waterfall: analysis.Waterfall, timeline: Timeline, changed_run: Trial) -> tuple[str, float]:
    """Return the part of the time that shrinks most in the changed run, with its share in the present run."""
    job, new_waterfall = changed_run.accepted_job, changed_run.waterfall
    old_factor = sample_seconds_per_cycle(analysis.throughput_of(timeline).samples, timeline.info.clock_hz)
    new_factor = sample_seconds_per_cycle(changed_run.samples * job.executions, job.system.clock_hz)
    savings = {
        part: waterfall.cycles[part] * old_factor - new_waterfall.cycles[part] * new_factor for part in waterfall.cycles
    }
    part = max(savings, key=lambda part: savings[part])
    return part.words, waterfall.share(part)


def _better_link_rate(trials: ChangeTrials, outcome: WhatIf) -> str:
    """Return a sentence on the link rate to change instead, if a change of link rates has no effect; else empty."""
    names, words = {f"rates.{name}" for name in LINKS}, outcome.change.words
    if outcome.after != outcome.before or not outcome.change.values or not outcome.change.values.keys() <= names:
        return ""

    def gain(text: str) -> float:
        return trials.outcome_of(Change(ON_REQUEST, text, settings(trials.job, text)), is_requested=True)[0].gain

    gains = {name: gain(f"{words} {name}=x2") for name in sorted(names - outcome.change.values.keys())}
    best = max(gains, key=lambda name: gains[name], default="")
    if gains.get(best, 0.0) < LEAST_GAIN:
        return f"{words} has no effect: the rate of links limits no copy of this run."
    return (
        f"{words} has no effect, because another rate limits the slowest copies: together with {best}=x2 the saving is "
        f"{gains[best]:.1%}, and with only {best}=x2 {gain(f'{best}=x2'):.1%}."
    )


def requested_changes(
    job: Job, timeline: Timeline, texts: Sequence[str]
) -> tuple[tuple[WhatIf, ...], tuple[ChangePair, ...]]:
    """Try a user's changes; returns outcomes in order, and outcomes of each pair of changes of different options.

    Args:
        job: Job to change.
        timeline: run of the Job.
        texts: changes such as ``a=1 b=2``: options by dotted name, with values, or with a factor on the
            present value such as ``x2``.

    Raises OptionError that lists all problems: unknown options, invalid values, impossible runs.
    """
    trials, outcomes, problems = ChangeTrials(job, timeline), list[WhatIf](), list[str]()
    for text in texts:
        try:
            outcome, _ = trials.outcome_of(Change(ON_REQUEST, text, settings(job, text)), is_requested=True)
        except OptionError as error:
            problems.append(error.args[1])
            continue
        if outcome.after is None:
            large = f", by {format_bytes(outcome.excess_bytes)}" if outcome.excess_bytes else ""
            problems.append(f"{text}: {outcome.refusal}{large}")
        outcomes.append(replace(outcome, alternative_words=_better_link_rate(trials, outcome)))
    if problems:
        raise OptionError("what", "\n".join(problems))
    pairs = []
    for first, second in combinations(outcomes, 2):
        if not first.change.values.keys() & second.change.values.keys():
            change = Change(
                ON_REQUEST,
                f"{first.change.words} {second.change.words}",
                {**first.change.values, **second.change.values},
            )
            pairs.append(ChangePair(trials.outcome_of(change, is_requested=True)[0], first.gain + second.gain))
    return tuple(outcomes), tuple(pairs)
