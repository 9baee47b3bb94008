"""Propose changes that may free memory of an IPU: options of a scenario, with a description and a kind of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from ipusim.api import Job, hardware, models, rules, runs
from ipusim.app.study.full_pipeline import COUNT

#: PopLibs' default share of an IPU's memory for products.
_PROPORTION: Final = 0.6
#: Modes of recomputation, with their description.
_RECOMPUTE: Final = (
    (rules.THEN_BACKPROPAGATE, "before each backward pass"),
    (rules.INTERLEAVED, "within each backward pass"),
)
#: Description of halved memory for products.
PRODUCTS_IN_HALF: Final = "matrix products in half their temporary memory"
#: Option that enables Streaming Memory.
REMOTE: Final = "system.enable_remote_buffers"
#: Option that moves activations out of an IPU and back.
ACTIVATIONS: Final = "pipeline.offload_activations"
#: Option that moves optimizer state to Streaming Memory.
_STATE: Final = "pipeline.offload_weight_update_variables"
#: Option that shards optimizer state over replicas.
_SHARDING: Final = "pipeline.replicated_optimizer_state_sharding"

#: A change to try: description, kind of tensors, and options.
Candidate = tuple[str, str, dict[str, Any]]


def _recomputations(job: Job) -> Iterator[Candidate]:
    """Yield recomputation in each mode."""
    for mode, words in _RECOMPUTE:
        stated_mode = runs.mode_to_state(job.request.options, job.schedule, mode)
        changes = {} if stated_mode is None else {"pipeline.recomputation_mode": stated_mode}
        yield f"activations recomputed {words}", "activations", {"pipeline.allow_recompute": True, **changes}


def candidates_of(job: Job) -> Iterator[Candidate]:
    """Yield changes to try, without changes already in force: description, kind of tensors, options."""
    options, program, offload = job.request.options, job.program, job.program.offload
    pipeline, shape = options.pipeline, program.shape
    if shape.training and not (shape.recompute or shape.recompute_inline):
        yield from _recomputations(job)
    if name := job.schedule.shallower:  # a schedule with FIFOs half as deep
        yield f"schedule {name}, half as many activations kept", "activations", {"pipeline.schedule": name}
    if not job.request.has_timed_stages:
        yield from _smaller_micro_batches(pipeline.micro_batch_size, pipeline.gradient_accumulation_count)
    if shape.training and offload.moved is None and shape.serialization == 1:
        for target, words in (("streaming_memory", "Streaming Memory"), ("partner", "the partner IPU")):
            values = {ACTIVATIONS: {"to": target}}
            remote_too = {REMOTE: True} if target == "streaming_memory" else {}
            yield f"activations moved to {words} and back", "activations", {**remote_too, **values}
    if shape.training and not offload.variables_on_host:
        remote = {REMOTE: True, _STATE: True}
        if not offload.weight_update_variables:
            yield "optimizer state in Streaming Memory", "state", remote
        if job.system.replicas > 1 and not offload.sharded_state:
            shard = {**remote, _SHARDING: True}
            yield "optimizer state in Streaming Memory, sharded over replicas", "state", shard
            on_ipus = job.system.framework in hardware.ON_POPART and not offload.weight_update_variables
            yield from (("optimizer state sharded over replicas", "state", {_SHARDING: True}),) * on_ipus
        if not offload.gradient_accumulation_buffers:
            sums = {REMOTE: True, "pipeline.offload_gradient_accumulation_buffers": True}
            yield "gradient accumulators in Streaming Memory", "accumulators", sums
        if job.system.replicas > 1 and not offload.weights:
            parts = {REMOTE: True, "pipeline.replicated_weight_sharding": True, "pipeline.offload_weights": True}
            yield "weights in Streaming Memory, sharded over replicas", "weights", parts
        # The update runs on the host then, so IPUs have no state to offload.
        no_state = {name: False for name in (_STATE, _SHARDING) if getattr(pipeline, name.rpartition(".")[2])}
        yield "optimizer state and update on the host", "state", {"pipeline.variables_on_host": True, **no_state}
    if changes := products_in_half(job.request.options, job.program.stages):
        yield PRODUCTS_IN_HALF, "products", changes


def _smaller_micro_batches(size: int, count: int) -> Iterator[Candidate]:
    """Yield micro-batches of one sample, then of half size, keeping the samples per weight update."""
    words_of_divisor = {
        size: f"micro-batches of 1 sample, {size} times as many",
        2: "micro-batches half as large, twice as many",
    }
    for divisor, words in words_of_divisor.items():
        if size > 1 and size % divisor == 0:
            sizes = {"pipeline.micro_batch_size": size // divisor, COUNT: count * divisor}
            yield words, "micro-batches", sizes


def products_in_half(options: runs.Options, profiles: Iterable[models.StageProfile]) -> dict[str, Any]:
    """Return options that halve the memory for products; empty for ``profiles`` without products."""
    if not any(profile.temporary_bytes for profile in profiles):
        return {}
    return {
        f"{name}.availableMemoryProportion": (product_options.availableMemoryProportion or _PROPORTION) / 2
        for name, product_options in _options_of_products(options)
    }


def _options_of_products(options: runs.Options) -> Iterator[tuple[str, runs.PoplarOptionsSpec]]:
    """Yield Poplar options of products by dotted name: global ones, and those of stages that set a share of memory."""
    for kind in ("matmuls", "convolutions"):
        yield f"system.{kind}.poplar_options", getattr(options.system, kind).poplar_options
    for name in ("forward_propagation_stages_poplar_options", "backward_propagation_stages_poplar_options"):
        for number, stage in enumerate(getattr(options.pipeline, name) or ()):
            for kind in ("matmul_options", "convolution_options"):
                if getattr(stage, kind).availableMemoryProportion is not None:
                    yield f"pipeline.{name}.{number}.{kind}", getattr(stage, kind)
