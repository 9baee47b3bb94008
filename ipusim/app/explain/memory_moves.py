"""What would take less of the IPUs' memory, class of tensor by class: what each change frees, and the time it costs.

Each change is an option of the scenario. What an IPU holds with it is the footprint of the program laid out anew; the
time between two weight updates is that of a run of time alone, and what a change adds to it are the parts of that
run's time, which add up to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from ipusim.api import Job, analysis, assemble, hardware, rules, runs
from ipusim.app.study.trial import Trial, time_alone, tried
from ipusim.base.cache import sharing

#: Parts of the time that a row names at most, and what of the time is too little to be named.
_NAMED: Final = 2
#: Passes that are simulated in about a second.
_MANY: Final = 50_000
_LEAST: Final = 0.001
#: What products take of an IPU's memory at most where nothing says (PopLibs' default).
_PROPORTION: Final = 0.6
#: The modes of recomputation, and where passes are then.
_RECOMPUTE: Final = ((rules.THEN_BACKPROPAGATE, "apart"), (rules.INTERLEAVED, "inside backward"))
#: What halving the room of products is called.
PRODUCTS_IN_HALF: Final = "products in half their room"
_REMOTE: Final = "system.enable_remote_buffers"
_STATE: Final = "pipeline.offload_weight_update_variables"
_SHARDING: Final = "pipeline.replicated_optimizer_state_sharding"
_PAIR: Final = 2

#: A change to try: its words, the class of its tensors, and its options.
_Candidate = tuple[str, str, dict[str, Any]]


@dataclass(frozen=True)
class Move:
    """A change that takes memory off an IPU.

    Attributes:
        words: what is done, with which tensors.
        changes: the options, by their dotted names.
        freed_bytes: less that the fullest IPU holds at its peak; of the one that was the fullest.
        peak_bytes: what the fullest IPU holds then, which may be another.
        fits: the answer to whether the program fits its memory then.
        period_s: seconds from one weight update to the next.
        paid: the parts of that time that take longer, and by how many seconds; the largest first.
    """

    words: str
    changes: Mapping[str, Any]
    freed_bytes: int
    peak_bytes: int
    fits: analysis.Fits
    period_s: float
    paid: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Moves:
    """Changes of options with the bytes that they free on an IPU.

    Attributes:
        ipu: the fullest.
        peak_bytes, sram_bytes: of it; None where memory is not limited.
        fits: the answer to whether the program fits its memory as it stands.
        period_s: seconds from one weight update to the next as it stands.
        moves: what frees any of its memory: what fits first, the fastest before others, then what frees most.
        no_help: other changes that were tried, with the rule that refuses each, or nothing where it frees nothing.
        already: what takes less memory as it stands.
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
def memory_moves(job: Job) -> Moves:
    """Return the bytes that each change of an option frees on the fullest IPU of ``job``, and the time it costs.

    Where none alone makes the program fit, every two for different tensors are tried together, and then more: the
    fastest that fit are among the moves, or else what leaves the fullest IPU with least.
    """
    base = Trial(assemble(time_alone(job.request, misfits=True)))
    candidates = [*_candidates(job)]
    trials = {words: (changes, tried(job.request, changes)) for words, _, changes in candidates}
    freed = {words: _freed(base, after) for words, (_, after) in trials.items() if after.job is not None}
    moves = {words: _move(words, *trials[words], base) for words, of in freed.items() if of > 0}
    lines = {words: after.refusal.splitlines()[:1] for words, (_, after) in trials.items() if words not in moves}
    no_help = [(words, "".join(line)) for words, line in lines.items()]
    if not any(analysis.usable(move.fits) for move in moves.values()):
        legal = sorted((row for row in candidates if row[0] in freed), key=lambda row: -freed[row[0]])
        together, least = _together(job, base, legal), min((move.peak_bytes for move in moves.values()), default=0)
        if together is not None and (analysis.usable(together.fits) or together.peak_bytes < least):
            moves[together.words] = together
    ordered, already = tuple(sorted(moves.values(), key=_rank)), tuple(_already(job))
    memory, period_s = base.accepted_job.memory, base.throughput.weight_update_period_s
    as_it_stands = memory.fullest.ipu, memory.fullest.bytes, memory.sram_bytes, memory.fits, period_s
    return Moves(*as_it_stands, ordered, tuple(no_help), already)


def is_long(job: Job) -> bool:
    """Whether its runs take long: of very many passes, all of which have to be simulated."""
    passes = 2 * job.program.shape.stages * job.program.shape.micro_batches * job.executions
    return job.schedule.period is None and passes > _MANY


def _rank(move: Move) -> tuple[bool, float]:
    usable = analysis.usable(move.fits)
    return not usable, move.period_s if usable else -move.freed_bytes


def _peak(trial: Trial, ipu: int) -> int:
    """Return the bytes of an IPU's peak; 0 of one that holds no stage."""
    return next((peak.bytes for peak in trial.accepted_job.memory.peaks if peak.ipu == ipu), 0)


def _freed(base: Trial, after: Trial) -> int:
    """Return by how much less the IPU holds that is the fullest of ``base``."""
    ipu = base.accepted_job.memory.fullest.ipu
    return _peak(base, ipu) - _peak(after, ipu)


def _paid(base: Trial, after: Trial) -> tuple[tuple[str, float], ...]:
    """Return the parts of the time that take longer than in ``base``."""
    longer = {part.words: seconds - base.parts_s[part] for part, seconds in after.parts_s.items()}
    least = _LEAST * base.throughput.weight_update_period_s
    named = [(words, seconds) for words, seconds in longer.items() if seconds > least]
    return tuple(sorted(named, key=lambda item: -item[1])[:_NAMED])


def _already(job: Job) -> Iterator[str]:
    """Yield the means of saving memory that a program uses already."""
    shape, offload = job.program.shape, job.program.offload
    if shape.recompute or shape.recompute_inline:
        yield "activations computed again"
    if offload.moved is not None:
        yield "activations moved out and back"
    if offload.weight_update_variables:
        yield f"optimizer state in Streaming Memory{', in parts of replicas' * offload.sharded_state}"
    elif offload.sharded_state:
        yield "optimizer state in parts of replicas"
    if offload.gradient_accumulation_buffers:
        yield "gradient accumulators in Streaming Memory"
    if offload.weights:
        yield "weights in Streaming Memory"
    if offload.variables_on_host:
        yield "optimizer state on the host"


def _move(words: str, changes: Mapping[str, Any], after: Trial, base: Trial) -> Move:
    """Return the move of a change that is not refused."""
    memory, period_s = after.accepted_job.memory, after.throughput.weight_update_period_s
    return Move(words, changes, _freed(base, after), memory.fullest.bytes, memory.fits, period_s, _paid(base, after))


def _candidates(job: Job) -> Iterator[_Candidate]:
    """Yield the changes of options to try: words, the class of tensors, the options; none that is in force already."""
    options, program, offload = job.request.options, job.program, job.program.offload
    pipeline, shape = options.pipeline, program.shape
    if shape.training and not (shape.recompute or shape.recompute_inline):
        for mode, words in _RECOMPUTE:
            changes = {"pipeline.allow_recompute": True, "pipeline.recomputation_mode": mode}
            yield f"activations computed again, {words}", "activations", changes
    if job.schedule.shallower:
        other = job.schedule.shallower
        yield f"schedule {other}, FIFOs half as deep", "activations", {"pipeline.schedule": other}
    if pipeline.micro_batch_size % 2 == 0 and not job.request.has_timed_stages:
        size, count = pipeline.micro_batch_size // 2, pipeline.gradient_accumulation_count * 2
        halves = {"pipeline.micro_batch_size": size, "pipeline.gradient_accumulation_count": count}
        yield "half the micro-batch, twice the count", "activations", halves
    if shape.training and offload.moved is None and shape.serialization == 1:
        for to, words in (("streaming_memory", "Streaming Memory"), ("partner", "the partner IPU")):
            moved = {"pipeline.offload_activations": {"to": to}}
            remote_too = {_REMOTE: True} if to == "streaming_memory" else {}
            yield f"activations moved to {words} and back", "activations", {**remote_too, **moved}
    if shape.training and not offload.variables_on_host:
        remote = {_REMOTE: True, _STATE: True}
        if not offload.weight_update_variables:
            yield "optimizer state in Streaming Memory", "state", remote
        if job.system.replicas > 1 and not offload.sharded_state:
            shard = {**remote, _SHARDING: True}
            yield "optimizer state there, in parts of replicas", "state", shard
            on_ipus = job.system.framework in hardware.ON_POPART and not offload.weight_update_variables
            yield from (("optimizer state in parts of replicas", "state", {_SHARDING: True}),) * on_ipus
        if not offload.gradient_accumulation_buffers:
            sums = {_REMOTE: True, "pipeline.offload_gradient_accumulation_buffers": True}
            yield "gradient accumulators in Streaming Memory", "accumulators", sums
        if job.system.replicas > 1 and not offload.weights:
            parts = {_REMOTE: True, "pipeline.replicated_weight_sharding": True, "pipeline.offload_weights": True}
            yield "weights there, in parts of replicas", "weights", parts
        # The IPUs have no part of the update then, and so no state that lies elsewhere.
        without = {name: False for name in (_STATE, _SHARDING) if getattr(pipeline, name.rpartition(".")[2])}
        yield "optimizer state and update on the host", "state", {"pipeline.variables_on_host": True, **without}
    if changes := products_in_half(job):
        yield PRODUCTS_IN_HALF, "products", changes


def products_in_half(job: Job) -> dict[str, Any]:
    """Return the options by which products take half as much memory at most; none where there are no products."""
    if not any(profile.temporary_bytes for profile in job.program.stages):
        return {}
    return {
        f"{name}.availableMemoryProportion": (options.availableMemoryProportion or _PROPORTION) / 2
        for name, options in _options_of_products(job.request.options)
    }


def _options_of_products(options: runs.Options) -> Iterator[tuple[str, runs.PoplarOptionsSpec]]:
    """Yield what plans products, by its dotted name: of all stages, and of each that has a share of its own."""
    for kind in ("matmuls", "convolutions"):
        yield f"system.{kind}.poplar_options", getattr(options.system, kind).poplar_options
    for name in ("forward_propagation_stages_poplar_options", "backward_propagation_stages_poplar_options"):
        for number, stage in enumerate(getattr(options.pipeline, name) or ()):
            for kind in ("matmul_options", "convolution_options"):
                if getattr(stage, kind).availableMemoryProportion is not None:
                    yield f"pipeline.{name}.{number}.{kind}", getattr(stage, kind)


def _together(job: Job, base: Trial, candidates: Sequence[_Candidate]) -> Move | None:
    """Return the fastest two changes for different tensors that fit together, or the first more that do.

    Args:
        job: the Job to change.
        base: the trial of the unchanged Job.
        candidates: legal changes, those that free most first.

    Where none fit it is what leaves the fullest IPU with least; None where no two of them are legal.
    """
    legal: list[tuple[str, dict[str, Any], Trial]] = []
    for one, other in combinations(candidates, 2):
        if one[1] != other[1]:
            legal += _both(job, [one, other])
    fitting = [row for row in legal if analysis.usable(row[2].fits)]
    if fitting:
        return _move(*min(fitting, key=lambda row: row[2].throughput.weight_update_period_s), base)
    chosen: dict[str, _Candidate] = {}
    for candidate in candidates:
        if candidate[1] in chosen:
            continue
        more = _both(job, [*chosen.values(), candidate])
        if chosen and not more:  # a rule refuses it beside the others
            continue
        chosen[candidate[1]] = candidate
        if len(chosen) > _PAIR:
            if analysis.usable(more[0][2].fits):
                return _move(*more[0], base)
            legal += more
    if not legal:
        return None
    return _move(*min(legal, key=lambda row: row[2].accepted_job.memory.fullest.bytes), base)


def _both(job: Job, candidates: Sequence[_Candidate]) -> list[tuple[str, dict[str, Any], Trial]]:
    """Return the words, the options and the trial of changes at once; nothing where a rule refuses them."""
    changes = {name: value for _, _, values in candidates for name, value in values.items()}
    after = tried(job.request, changes)
    return [] if after.job is None else [(" and ".join(words for words, _, _ in candidates), changes, after)]
