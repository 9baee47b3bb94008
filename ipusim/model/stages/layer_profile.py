"""Compute the profile of a stage of layers (work and memory) for a single micro-batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from ipusim.base.errors import ModelError
from ipusim.model.layers.layer import Halves, OnHost, View, all_later, parameter_count
from ipusim.model.learning.optimizers import Optimizer
from ipusim.model.learning.variable_work import Reduction, VariableSize, accumulation_work, with_variables
from ipusim.model.profile import StageProfile
from ipusim.model.stages.skips import Skips
from ipusim.model.stages.stage import LayerStage
from ipusim.model.stages.stash import saved_bytes
from ipusim.model.work import TableBytes, Work


def layer_profile(
    stage: LayerStage,
    batch: int,
    itemsize: int,
    label_bytes: int = 0,
    training: bool = True,
    optimizer: Optimizer | None = None,
    accumulator_itemsize: int | Callable[[str], int] | None = None,
    reduction: Reduction = "SUM",
) -> StageProfile:
    """Return the profile of the stage for a micro-batch of ``batch`` samples.

    Args:
        stage: the stage.
        batch: samples per micro-batch.
        itemsize: bytes per element of weights and activations.
        label_bytes: bytes of a micro-batch's labels, included in every copy on the way to the stage with the loss.
        training: whether to include the backward pass and the weight update.
        optimizer: optimizer of the weight update; its gradient map runs at the end of the backward pass.
        accumulator_itemsize: bytes per accumulator element, or a function of the parameter's name, ``layer/W``;
            default: the parameters' itemsize.
        reduction: scaling in the accumulation.

    In training, the backward pass (or its second half) ends with the accumulation: a sum per parameter, which reads the
    gradient, and reads and writes the accumulator. A parameter that several layers share has a gradient and a sum per
    use; the stage with the first use owns its weights, state, accumulator and update. The weight update reads the
    accumulators. The last stage sends no output: see :meth:`LayerStage.result_bytes`.
    """
    forward, backward, halves = _passes(stage, batch, itemsize)
    sum_itemsize = accumulator_itemsize or itemsize
    variables = {
        name: VariableSize(size, itemsize, sum_itemsize(name) if callable(sum_itemsize) else sum_itemsize)
        for name, size in stage.parameter_sizes.items()
        if name not in stage.frozen_names
    }
    profile = _forward_profile(stage, forward, batch, itemsize, label_bytes)
    if not training:
        return with_variables(profile, variables.values(), (), None, itemsize)
    further_uses = [variables[name] for name, uses in stage.uses.items() if name in variables for _ in range(uses - 1)]
    first_uses = accumulation_work(variables.values(), optimizer.gradient_map if optimizer else None, reduction)
    accumulation = (*first_uses, *accumulation_work(further_uses, None, reduction))
    owned_sizes = [size for name, size in variables.items() if name in stage.owned_sizes]
    kept_bytes = saved_bytes(stage, batch, itemsize)
    arriving_elements = stage.skips.elements(stage.skips.arriving_values) if stage.skips else 0
    profile = replace(
        profile,
        backward=(*backward, *accumulation),
        backward_input=halves[0],
        backward_weights=(*halves[1], *accumulation),
        gradient_bytes=batch * itemsize * (math.prod(stage.shapes[0]) + arriving_elements) * stage.needs_input_gradient,
        waiting_bytes=2 * profile.waiting_bytes,  # values forward, and their gradients backward
        stash_bytes=kept_bytes.stash,
        rest_bytes=kept_bytes.rest_bytes,
        weight_gradient_bytes=itemsize * _largest_layer_weights(stage),
        tables=_tables(stage, batch, itemsize),
    )
    if stage.checkpoints:
        own_labels = label_bytes if stage.loss is not None else 0
        profile = _with_checkpoints(stage, profile, forward, batch, itemsize, own_labels)
    return with_variables(profile, variables.values(), owned_sizes, optimizer, itemsize)


def _forward_profile(
    stage: LayerStage, forward: tuple[Work, ...], batch: int, itemsize: int, label_bytes: int
) -> StageProfile:
    """Return the profile of the stage without a backward pass or a weight update."""
    skips, element_bytes = stage.skips or Skips(), batch * itemsize
    used_elements = skips.elements(skips.beside_input, skips.used_values)
    leaving_bytes = element_bytes * skips.elements(skips.sent_values)
    passing_labels = label_bytes if stage.labels_travel_on else 0
    frozen = sum(size for name, size in stage.owned_sizes.items() if name in stage.frozen_names)
    return StageProfile(
        name=stage.name,
        forward=forward,
        backward=(),
        output_bytes=0 if stage.is_last else stage.result_bytes(batch, itemsize) + leaving_bytes + passing_labels,
        parameter_bytes=(sum(stage.owned_sizes.values()) - frozen) * itemsize,
        untrained_bytes=frozen * itemsize,
        label_bytes=0 if stage.is_last else passing_labels,
        input_bytes=element_bytes * (math.prod(stage.shapes[0]) + used_elements)
        + (label_bytes if stage.labels_travel_on or stage.loss is not None else 0),
        working_bytes=element_bytes * _largest_layer_elements(stage),
        waiting_bytes=element_bytes * sum(depth * math.prod(value.shape) for value, depth in skips.stored_values),
        tables=replace(_tables(stage, batch, itemsize), gradients=0),
        layers=stage.layers,
    )


def _largest_layer_elements(stage: LayerStage) -> int:
    """Return the largest sum of a layer's input and output elements, per sample.

    The output of a loss is negligible, and changes of view access no memory.
    """
    sizes = [*map(math.prod, stage.shapes), 0]
    layers = zip(stage.layers_and_loss, pairwise(sizes), strict=False)
    return max(
        (sum(sizes_of_layer) for named_layer, sizes_of_layer in layers if not isinstance(named_layer.layer, View)),
        default=0,
    )


def _largest_layer_weights(stage: LayerStage) -> int:
    """Return the number of weights of the layer with most weights that learn on the IPU."""
    layers = zip(stage.layers_and_loss, stage.shapes, strict=False)
    weights = (
        parameter_count(named_layer.layer, shape)
        for named_layer, shape in layers
        if not isinstance(named_layer.layer, OnHost) and named_layer.trained_names(shape, stage.frozen)
    )
    return max(weights, default=0)


def _passes(
    stage: LayerStage, batch: int, itemsize: int
) -> tuple[tuple[Work, ...], tuple[Work, ...], tuple[tuple[Work, ...], tuple[Work, ...]]]:
    """Return the work of the forward pass, of the backward pass, and of the backward pass in halves.

    Forward work is in the order of layers, backward work from the last layer to the lowest that the pass reaches. The
    first layer that learns has only a second half, and a frozen layer only a first half.
    """
    ends_in_stage = not stage.needs_input_gradient
    lowest = stage.first_trained if ends_in_stage else 0
    forward: list[Work] = []
    backward: list[Work] = []
    halves: list[Halves] = []
    for index, (named_layer, shape) in enumerate(zip(stage.layers_and_loss, stage.shapes, strict=False)):
        try:
            cost = named_layer.layer.cost(shape, batch, itemsize, not ends_in_stage or index > lowest)
        except ModelError as error:
            raise ModelError(f"layer {named_layer.name!r} on {batch} samples of shape {shape}: {error}") from None
        forward.append(cost.forward)
        if index >= lowest and not named_layer.trained_names(shape, stage.frozen):
            backward.append(cost.halves.input)
            halves.append(Halves(cost.halves.input, Work(itemsize=itemsize)))
        elif index >= lowest:
            backward.append(cost.backward)
            is_lowest = ends_in_stage and index == lowest < len(stage.named_layers)
            halves.append(all_later(cost.backward) if is_lowest else cost.halves)
    halves.reverse()
    input_halves = tuple(half.input for half in halves if not half.input.is_nothing)
    weight_halves = tuple(half.weights for half in halves if not half.weights.is_nothing)
    return tuple(forward), tuple(reversed(backward)), (input_halves, weight_halves)


def _tables(stage: LayerStage, batch: int, itemsize: int) -> TableBytes:
    """Return the bytes moved between the IPU and tables on the host in training."""
    total = TableBytes()
    for named_layer, shape in zip(stage.layers_and_loss, stage.shapes, strict=False):
        if isinstance(named_layer.layer, OnHost):
            layer_bytes = named_layer.layer.table_bytes(shape, batch, itemsize)
            total += (
                layer_bytes if named_layer.trained_names(shape, stage.frozen) else replace(layer_bytes, gradients=0)
            )
    return total


def _with_checkpoints(
    stage: LayerStage, profile: StageProfile, forward: tuple[Work, ...], batch: int, itemsize: int, own_labels: int
) -> StageProfile:
    """Return the profile with recomputed work, checkpoints, and the largest live memory.

    The forward pass keeps the inputs of recomputed clusters (layers between checkpoints). In the last stage it also
    keeps the stash of the final cluster, labels included; this stash is released before activations are recomputed.
    """
    starts = (0, *stage.checkpoints, len(forward))
    first_cluster = 0 if stage.needs_input_gradient else stage.first_trained_cluster
    recomputed = stage.clusters[first_cluster : -1 if stage.is_last else None]
    kept_checkpoints = stage.checkpoints[:-1] if stage.is_last else stage.checkpoints
    kept_bytes = sum(batch * math.prod(stage.shapes[position]) * itemsize for position in kept_checkpoints)
    final_stash = saved_bytes(stage.clusters[-1], batch, itemsize).stash if stage.is_last else 0
    return replace(
        profile,
        recompute=forward[starts[first_cluster] : starts[-2] if stage.is_last else None],
        checkpoint_bytes=profile.input_bytes - own_labels + kept_bytes + final_stash,
        cluster_bytes=max([0, *(saved_bytes(cluster, batch, itemsize).stash - final_stash for cluster in recomputed)]),
    )
