"""Cut a network into computational stages, including skip connections and branches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ipusim.base.errors import ModelError
from ipusim.model.layers.join import Join, SkipValue
from ipusim.model.layers.layer import Layer
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.layers.parallel import Parallel
from ipusim.model.stages.skips import Skips
from ipusim.model.stages.stage import LayerStage, PlacedLayer


def build_stages(
    network: Network,
    groups: Sequence[Sequence[str]],
    names: Sequence[str] | None = None,
    concurrent: Collection[int] = (),
    checkpoints: Collection[str] = (),
    returning: Returning | None = None,
) -> tuple[LayerStage, ...]:
    """Return a stage per group of layer names.

    ``names`` are the stages' names; default: ``stage 0`` and so on. Stages in ``concurrent`` consist of a single
    parallel layer, and become a stage per branch, named ``stage 1a``, ``stage 1b``. ``checkpoints`` are layers whose
    outputs are checkpoints for recomputation inside the backward pass; the last layer of a stage is not a checkpoint,
    since its output leaves the stage. ``returning`` selects values of skip connections that stay on an IPU; by default
    every value travels. Raises ModelError unless the non-empty groups are the network's layers in order.
    """
    layer_names = [name for group in groups for name in group]
    if layer_names != list(network.names):
        raise ModelError(
            f"expected the stages to list all layers in order, {', '.join(network.names)}; got {layer_names}"
        )
    if not all(groups):
        raise ModelError(f"stage {[bool(group) for group in groups].index(False)} has no layers: every stage needs one")
    names = [f"stage {index}" for index in range(len(groups))] if names is None else names
    stages: list[LayerStage] = []
    skips = _skips(network, groups, returning)
    start = 0
    for index, (name, group) in enumerate(zip(names, groups, strict=True)):
        end = min(start + len(group), len(network.layers))
        if index in concurrent:
            skip = skips[index]
            if skip is not None and (skip.arriving_values or skip.sent_values):
                values = skip.arriving_values or skip.sent_values
                raise ModelError(
                    f"stage {name!r}: expected no skip connection over concurrent stages, got {values[0].source!r}"
                )
            stages += _branch_stages(network, name, start, group)
            start = end
            continue
        has_loss = network.loss is not None and index == len(groups) - 1
        stages.append(
            LayerStage(
                name=name,
                named_layers=network.layers[start:end],
                loss=network.loss if has_loss else None,
                shapes=network.shapes[start : end + 1],
                first_position=start,
                is_last=index == len(groups) - 1,
                labels_travel_on=network.loss is not None and not has_loss,
                checkpoints=tuple(position for position, layer in enumerate(group[:-1], 1) if layer in checkpoints),
                skips=skips[index],
                owners=_owners(network, start, end),
                frozen=network.frozen,
                needs_input_gradient=network.first_trained < start,
            )
        )
        start = end
    return tuple(stages)


def _owners(network: Network, start: int, end: int) -> tuple[PlacedLayer, ...]:
    """Return the layers before ``start`` with parameters shared by layers from ``start`` to ``end``."""
    owner_names = {
        owner for named_layer in network.layers[start:end] for owner, _ in named_layer.shared_parameters.values()
    }
    candidates = zip(network.layers[:start], network.shapes, strict=False)
    return tuple(
        PlacedLayer(position, named_layer, shape)
        for position, (named_layer, shape) in enumerate(candidates)
        if named_layer.name in owner_names
    )


def _skips(network: Network, groups: Sequence[Sequence[str]], returning: Returning | None) -> list[Skips | None]:
    """Return every stage's part in skip connections; None throughout for a network without skip connections."""
    stage_of = {name: stage for stage, group in enumerate(groups) for name in group}
    uses: dict[SkipValue, list[int]] = {}
    for named_layer in network.layers:
        if isinstance(named_layer.layer, Join):
            uses.setdefault(named_layer.layer.skip_value, []).append(stage_of[named_layer.name])
    if not uses:
        return [None] * len(groups)
    stage_skips = [Skips() for _ in groups]
    for value in sorted(uses, key=lambda value: network.names.index(value.source)):
        stages = sorted(set(uses[value]))
        for stage in stages:
            stage_skips[stage] = _extend(stage_skips[stage], used_values=value)
        current_stage = stage_of[value.source]
        # The whole output of a stage's last layer crosses to the next stage anyway.
        is_stage_output = value.crop is None and value.source == groups[current_stage][-1]
        while current_stage < stages[-1]:
            next_stage = returning.next_stage(current_stage, stages) if returning else None
            if next_stage is not None:
                assert returning is not None
                stage_skips[current_stage] = _extend(
                    stage_skips[current_stage], stored_values=(value, returning.depth(current_stage, next_stage))
                )
                stage_skips[next_stage] = _extend(stage_skips[next_stage], fetched_values=value)
                current_stage = next_stage
                continue
            if is_stage_output and current_stage == stage_of[value.source]:
                stage_skips[current_stage + 1] = replace(stage_skips[current_stage + 1], input_name=value.name)
            else:
                stage_skips[current_stage] = _extend(stage_skips[current_stage], sent_values=value)
                stage_skips[current_stage + 1] = _extend(stage_skips[current_stage + 1], arriving_values=value)
            current_stage += 1
    return list(stage_skips)


@dataclass(frozen=True)
class Returning:
    """Values that stay on an IPU for a later stage on the same IPU.

    Attributes:
        devices: IPUs of the stages; -1 for concurrent stages.
        fifos: whether stages work on different micro-batches at a time (Grouped), so that values wait in FIFOs;
            otherwise the next stage takes values immediately (Sequential).
    """

    devices: tuple[int, ...]
    fifos: bool

    def next_stage(self, stage: int, uses: Sequence[int]) -> int | None:
        """Return the next stage on the same IPU if a value can wait on the IPU for it; otherwise None.

        The value cannot wait if the next stage is adjacent, or after the last of ``uses``, or if a stage in between
        uses the value.
        """
        next_stage = next(
            (
                candidate
                for candidate in range(stage + 1, len(self.devices))
                if self.devices[candidate] == self.devices[stage]
            ),
            None,
        )
        if (
            next_stage is None
            or next_stage < stage + 2
            or next_stage > uses[-1]
            or any(stage < use < next_stage for use in uses)
        ):
            return None
        return next_stage

    def depth(self, stage: int, next_stage: int) -> int:
        """Return the number of micro-batches waiting between the two stages."""
        return next_stage - stage - 1 if self.fifos else 0


def _extend(skips: Skips, **additions: Any) -> Skips:
    """Return ``skips`` with values appended to some attributes."""
    longer: dict[str, Any] = {name: (*getattr(skips, name), value) for name, value in additions.items()}
    return replace(skips, **longer)


def _branch_stages(network: Network, name: str, start: int, group: Sequence[str]) -> Iterator[LayerStage]:
    """Yield a stage per branch of ``group``'s single parallel layer; labels travel with the first branch."""
    named_layer = network.layers[start]
    if len(group) != 1 or not isinstance(named_layer.layer, Parallel):
        raise ModelError(f"stage {name!r}: expected one parallel layer for concurrent stages, got {', '.join(group)}")
    input_shape = network.shapes[start]
    for number, branch in enumerate(named_layer.layer.parts):
        yield LayerStage(
            name=f"{name}{chr(ord('a') + number)}",
            named_layers=(NamedLayer[Layer](named_layer.name, branch),),
            loss=None,
            shapes=(input_shape, branch.output_shape(input_shape)),
            first_position=start,
            is_last=False,
            labels_travel_on=network.loss is not None and number == 0,
            frozen=network.frozen,
            needs_input_gradient=network.first_trained < start,
        )
