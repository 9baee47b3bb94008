"""How a network is cut into computational stages, its skip connections and branches with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate

from ipusim.errors import ModelError
from ipusim.model.layer import Layer, Shape
from ipusim.model.network import NamedLayer, Network
from ipusim.model.parallel import Parallel
from ipusim.model.skips import Routes
from ipusim.model.stage import LayerStage


def build_stages(
    network: Network,
    groups: Sequence[Sequence[str]],
    names: Sequence[str] | None = None,
    concurrent: Collection[int] = (),
    checkpoints: Collection[str] = (),
) -> tuple[LayerStage, ...]:
    """Make one stage of each group of layer names, as :func:`ipusim.model.network.split` gives them.

    ``names`` are the stages' names, by default ``stage 0`` and so on. Those whose numbers are in
    ``concurrent`` are one parallel layer each, and become a stage for each of its branches, named
    ``stage 1a``, ``stage 1b``. ``checkpoints`` are layers whose outputs are checkpoints of recomputation
    inside the backward pass; that of a stage's last layer leaves the stage anyway, and is none.
    Raises ModelError unless the groups are the network's layers in
    order, none empty.
    """
    listed = [name for group in groups for name in group]
    if listed != list(network.names):
        raise ModelError(f"expected the stages to list all layers in order, {', '.join(network.names)}; got {listed}")
    if not all(groups):
        raise ModelError(f"stage {[bool(group) for group in groups].index(False)} has no layers: every stage needs one")
    names = [f"stage {index}" for index in range(len(groups))] if names is None else names
    stages: list[LayerStage] = []
    routes = _routes(network, groups)
    start = 0
    for index, (name, group) in enumerate(zip(names, groups, strict=True)):
        end = min(start + len(group), len(network.layers))
        if index in concurrent:
            crossing = routes[index]
            if crossing is not None and (crossing.arriving or crossing.leaving):
                over = crossing.arriving or crossing.leaving
                raise ModelError(
                    f"stage {name!r}: expected no skip connection over concurrent stages, got {over[0][0]!r}"
                )
            stages += _parts(network, name, start, group)
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
                checkpoints=tuple(at for at, layer in enumerate(group[:-1], 1) if layer in checkpoints),
                routes=routes[index],
            )
        )
        start = end
    return tuple(stages)


def _routes(network: Network, groups: Sequence[Sequence[str]]) -> list[Routes | None]:
    """Return what each stage has to do with skip connections; None for all where the network has none."""
    adds = [(place, source) for place in range(len(network.layers)) if (source := network.source_of(place)) is not None]
    if not adds:
        return [None] * len(groups)
    last_use = {source: place for place, source in adds}  # adds come in order, so the last one stays
    ends = list(accumulate(len(group) for group in groups))
    found: list[Routes | None] = []
    for start, end in zip([0, *ends], ends, strict=False):
        crossing_in = [source for source in sorted(last_use) if source < start <= last_use[source]]
        crossing_out = [source for source in sorted(last_use) if source < end <= last_use[source]]

        def values(sources: Sequence[int], edge: int) -> tuple[tuple[str, Shape], ...]:
            # what the layer right before an edge makes crosses it anyway
            return tuple(
                (network.layers[source].name, network.shapes[source + 1]) for source in sources if source != edge - 1
            )

        own = [source for place, source in adds if start <= place < end]
        found.append(
            Routes(
                network.layers[start - 1].name if start - 1 in crossing_in else "",
                values(crossing_in, start),
                values(crossing_out, end),
                tuple(network.layers[source].name for source in sorted(set(own))),
            )
        )
    return found


def _parts(network: Network, name: str, start: int, group: Sequence[str]) -> Iterator[LayerStage]:
    """Yield a stage for each branch of the one parallel layer of ``group``; labels go on beside the first."""
    named = network.layers[start]
    if len(group) != 1 or not isinstance(named.layer, Parallel):
        raise ModelError(f"stage {name!r}: expected one parallel layer for concurrent stages, got {', '.join(group)}")
    before = network.shapes[start]
    for number, branch in enumerate(named.layer.parts):
        yield LayerStage(
            name=f"{name}{chr(ord('a') + number)}",
            named_layers=(NamedLayer[Layer](named.name, branch),),
            loss=None,
            shapes=(before, branch.output_shape(before)),
            first_position=start,
            is_last=False,
            labels_travel_on=network.loss is not None and number == 0,
        )
