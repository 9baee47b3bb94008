"""Try changes that free memory on the fullest IPU; find freed bytes and time cost per change.

Each change sets options of the scenario; a change that frees memory is a move. The memory comes from the footprint of
the changed program. A timing-only run gives the time between two weight updates. The time cost of a change is the
growth of the parts of this time, which add up to the whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import inf
from typing import Any, Final

from ipusim.api import Job, analysis, assemble
from ipusim.app.explain.memory_candidates import REMOTE, Candidate, candidates_of
from ipusim.app.study.trial import Trial, time_alone, try_request
from ipusim.base.cache import sharing
from ipusim.base.units import enumerated

#: Maximum number of parts of the time named per row.
_MOST_PARTS: Final = 2
#: Maximum number of passes for a simulation of about one second.
_MOST_QUICK_PASSES: Final = 50_000
#: Minimum growth of a named part of the time, divided by the unchanged time.
_LEAST_PART_SHARE: Final = 0.001
#: Maximum number of tried sets of changes.
_MOST_SETS: Final = 40

#: Changes tried together: description, options, and their trial.
_TriedChanges = tuple[str, dict[str, Any], Trial]


@dataclass(frozen=True)
class Move:
    """A change that frees memory of an IPU.

    Attributes:
        words: description of the change, with its tensors.
        changes: options by dotted name.
        freed_bytes: bytes freed at the peak of the IPU that was fullest before the change.
        peak_ipu, peak_bytes: fullest IPU after the change, and its peak.
        fits: whether the changed program fits its memory.
        period_s: seconds from one weight update to the next.
        paid: parts of this time that become longer, with their additional seconds, largest first; empty if
            not requested.
    """

    words: str
    changes: Mapping[str, Any]
    freed_bytes: int
    peak_ipu: int
    peak_bytes: int
    fits: analysis.Fits
    period_s: float
    paid: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Moves:
    """Changes of options with bytes freed on an IPU.

    Attributes:
        ipu: fullest IPU.
        peak_bytes, sram_bytes: peak and memory of this IPU; sram_bytes is None for unlimited memory.
        fits: whether the unchanged program fits its memory.
        period_s: seconds from one weight update to the next without changes.
        moves: changes that free memory: fitting changes by time, then other changes by freed bytes.
        no_help: other tried changes, each with the rule that refuses it, or an empty string if it frees no bytes.
        already: memory savings that the unchanged program uses.
    """

    ipu: int
    peak_bytes: int
    sram_bytes: int | None
    fits: analysis.Fits
    period_s: float
    moves: tuple[Move, ...]
    no_help: tuple[tuple[str, str], ...]
    already: tuple[str, ...]


@sharing
def memory_moves(job: Job, *, with_longer_parts: bool = True) -> Moves:
    """Try changes of a Job; return bytes freed on the fullest IPU and time cost per change.

    ``with_longer_parts`` adds the parts of the time that become longer. If the program does not fit, sets of changes
    for different tensors are tried too. The fastest fitting set becomes a move, unless a single change is faster. If no
    set fits, the set with lowest peak becomes a move.
    """
    base = Trial(assemble(time_alone(job.request, allow_oversized=True)))
    tried = [(candidate, try_request(job.request, candidate[2])) for candidate in candidates_of(job)]
    candidates = [(_words_with_state(*candidate, base, trial), *candidate[1:]) for candidate, trial in tried]
    trials = {words: (changes, trial) for (words, _, changes), (_, trial) in zip(candidates, tried, strict=True)}
    freed_bytes = {words: _freed_bytes(base, trial) for words, (_, trial) in trials.items() if trial.job is not None}
    move_of = partial(_move, base=base, with_longer_parts=with_longer_parts)
    moves = {words: move_of(words, *trials[words]) for words, byte_count in freed_bytes.items() if byte_count > 0}
    first_lines = {words: trial.refusal.splitlines()[:1] for words, (_, trial) in trials.items() if words not in moves}
    no_help = [(words, "".join(line)) for words, line in first_lines.items()]
    if not analysis.fits_or_unknown(base.fits):
        legal = sorted((row for row in candidates if row[0] in freed_bytes), key=lambda row: -freed_bytes[row[0]])
        legal_trials = {words: trials[words][1] for words in freed_bytes}
        fastest_s = min((move.period_s for move in moves.values() if analysis.fits_or_unknown(move.fits)), default=inf)
        lowest_peak = min((move.peak_bytes for move in moves.values()), default=0)
        best = _best_set(job, base, legal, legal_trials, fastest_s)
        if best is not None and (_fits(best) or _fullest_bytes(best) < lowest_peak):
            moves[best[0]] = move_of(*best)
    in_order, in_use = tuple(sorted(moves.values(), key=_rank)), tuple(_savings_in_use(job))
    memory, period_s = base.accepted_job.memory, base.throughput.weight_update_period_s
    unchanged = memory.fullest.ipu, memory.fullest.bytes, memory.sram_bytes, memory.fits, period_s
    return Moves(*unchanged, in_order, tuple(no_help), in_use)


def is_long(job: Job) -> bool:
    """Tell whether runs take long because many passes must be simulated one by one."""
    passes = 2 * job.program.shape.stages * job.program.shape.micro_batches * job.executions
    return job.schedule.period is None and passes > _MOST_QUICK_PASSES


def _rank(move: Move) -> tuple[bool, float]:
    """Return a sort key: fitting changes by time, then oversized changes by freed bytes."""
    may_fit = analysis.fits_or_unknown(move.fits)
    return not may_fit, move.period_s if may_fit else -move.freed_bytes


def _peak(trial: Trial, ipu: int) -> int:
    """Return the peak bytes of an IPU; 0 for an IPU without a stage."""
    return next((peak.bytes for peak in trial.accepted_job.memory.peaks if peak.ipu == ipu), 0)


def _freed_bytes(base: Trial, trial: Trial) -> int:
    """Return the bytes freed on the fullest IPU of ``base``."""
    ipu = base.accepted_job.memory.fullest.ipu
    return _peak(base, ipu) - _peak(trial, ipu)


def _words_with_state(words: str, kind: str, changes: Mapping[str, Any], base: Trial, trial: Trial) -> str:
    """Return the description of a change, extended by the optimizer state if the change moves the state too.

    By default this state is in Streaming Memory as soon as an option enables Streaming Memory.
    """
    program = base.accepted_job.program
    if trial.job is None or kind == "state" or not any(stage.state_bytes for stage in program.stages):
        return words
    moves_state = trial.job.program.offload.weight_update_variables and not program.offload.weight_update_variables
    return f"{words}, with the optimizer state" if REMOTE in changes and moves_state else words


def _longer_parts(base: Trial, trial: Trial) -> tuple[tuple[str, float], ...]:
    """Return the parts of the time that grow most from ``base``, with their additional seconds."""
    longer = {part.words: seconds - base.parts_s[part] for part, seconds in trial.parts_s.items()}
    threshold_s = _LEAST_PART_SHARE * base.throughput.weight_update_period_s
    longest = [(words, seconds) for words, seconds in longer.items() if seconds > threshold_s]
    return tuple(sorted(longest, key=lambda item: -item[1])[:_MOST_PARTS])


def _savings_in_use(job: Job) -> Iterator[str]:
    """Yield memory savings that a program already uses."""
    shape, offload = job.program.shape, job.program.offload
    if shape.recompute or shape.recompute_inline:
        yield "activations recomputed"
    if offload.moved is not None:
        yield "activations moved out and back"
    if offload.weight_update_variables:
        yield f"optimizer state in Streaming Memory{', sharded over replicas' * offload.sharded_state}"
    elif offload.sharded_state:
        yield "optimizer state sharded over replicas"
    if offload.gradient_accumulation_buffers:
        yield "gradient accumulators in Streaming Memory"
    if offload.weights:
        yield "weights in Streaming Memory"
    if offload.variables_on_host:
        yield "optimizer state on the host"


def _move(words: str, changes: Mapping[str, Any], trial: Trial, base: Trial, *, with_longer_parts: bool) -> Move:
    """Return the move of an accepted change."""
    memory, period_s = trial.accepted_job.memory, trial.throughput.weight_update_period_s
    return Move(
        words,
        changes,
        _freed_bytes(base, trial),
        memory.fullest.ipu,
        memory.fullest.bytes,
        memory.fits,
        period_s,
        _longer_parts(base, trial) if with_longer_parts else (),
    )


def _best_set(
    job: Job, base: Trial, candidates: Sequence[Candidate], trials: Mapping[str, Trial], fastest_s: float
) -> _TriedChanges | None:
    """Return the fastest fitting set of changes for different tensors.

    A set's expected time is the unchanged time plus the differences of single changes. Sets are tried in order of
    expected times, until a fitting set is faster than the next expected time. If no set fits, changes with most freed
    bytes are combined one by one until the program fits; unnecessary changes are taken out again.

    Args:
        job: the Job to change.
        base: the trial of the unchanged Job.
        candidates: legal changes, by freed bytes in descending order.
        trials: trials of candidates by description.
        fastest_s: period of the fastest fitting single change, or infinity.

    Returns:
        The fastest set; if no set fits, the set with lowest peak; None if rules refuse all sets, or single changes
        are faster.
    """
    base_s, by_kind, found = base.throughput.weight_update_period_s, defaultdict[str, list[Candidate]](list), None
    for candidate in candidates:
        _, kind, _ = candidate
        by_kind[kind].append(candidate)
    longer_s = {words: trial.throughput.weight_update_period_s - base_s for words, trial in trials.items()}
    choices = product(*([None, *of_kind] for of_kind in by_kind.values()))
    sets = [[change for change in choice if change is not None] for choice in choices]
    expected = [(base_s + sum(longer_s[words] for words, *_ in chosen), chosen) for chosen in sets if len(chosen) > 1]
    legal: list[_TriedChanges] = []
    for expected_s, chosen in sorted(expected, key=lambda item: item[0])[:_MOST_SETS]:
        if expected_s >= fastest_s:
            break
        for tried in _try_together(job, chosen):
            legal.append(tried)
            if _fits(tried) and _period_s(tried) < fastest_s:
                found, fastest_s = tried, _period_s(tried)
    if found is None and fastest_s == inf:
        found = _largest_changes(job, candidates, legal)
    return found


def _largest_changes(job: Job, candidates: Sequence[Candidate], legal: list[_TriedChanges]) -> _TriedChanges | None:
    """Combine the largest change of each kind of tensors, kind by kind, until the program fits.

    Unnecessary changes are then taken out. If no combination fits, the tried set with lowest peak is returned; tried
    sets include ``legal``.
    """
    best_of_kind: dict[str, Candidate] = {}
    for candidate in candidates:
        _, kind, _ = candidate
        if kind in best_of_kind:
            continue
        combined = _try_together(job, [*best_of_kind.values(), candidate])
        if best_of_kind and not combined:  # a rule refuses the combination
            continue
        best_of_kind[kind] = candidate
        if len(best_of_kind) > 1:
            if _fits(combined[0]):
                return _without_spare(job, list(best_of_kind.values()), combined[0])
            legal += combined
    return min(legal, key=_fullest_bytes, default=None)


def _without_spare(job: Job, candidates: list[Candidate], fitting: _TriedChanges) -> _TriedChanges:
    """Take changes out of a combination one by one, while the remaining changes fit and take less time."""
    smaller = [
        (remaining, tried)
        for spare in candidates
        for remaining in [[candidate for candidate in candidates if candidate is not spare]]
        for tried in _try_together(job, remaining)
        if _fits(tried) and _period_s(tried) < _period_s(fitting)
    ]
    if not smaller:
        return fitting
    remaining, tried = min(smaller, key=lambda item: _period_s(item[1]))
    return _without_spare(job, remaining, tried)


def _fits(tried: _TriedChanges) -> bool:
    _, _, trial = tried
    return analysis.fits_or_unknown(trial.fits)


def _period_s(tried: _TriedChanges) -> float:
    _, _, trial = tried
    return trial.throughput.weight_update_period_s


def _fullest_bytes(tried: _TriedChanges) -> int:
    _, _, trial = tried
    return trial.accepted_job.memory.fullest.bytes


def _try_together(job: Job, candidates: Sequence[Candidate]) -> list[_TriedChanges]:
    """Return description, options and trial of combined changes; empty if a rule refuses them."""
    changes = {name: value for _, _, values in candidates for name, value in values.items()}
    trial = try_request(job.request, changes)
    return [] if trial.job is None else [(enumerated([words for words, _, _ in candidates]), changes, trial)]
