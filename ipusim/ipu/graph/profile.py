"""Compute profiles of traced stages (work, memory, transferred bytes) from one observed micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ipusim.api import Array, VectorWork, Work, functions, models
from ipusim.ipu.graph.checkpoints import Sections
from ipusim.ipu.graph.cut import StageCut, Trace, cut_stages, with_sums
from ipusim.ipu.graph.executable import Invocation
from ipusim.ipu.graph.host_scopes import HostCalls, HostScopes
from ipusim.ipu.graph.node import Graph, Output, Variable, source_of
from ipusim.ipu.graph.prices.nodes import FREE
from ipusim.ipu.graph.prices.observed import Observation, ObservedNode, bytes_of
from ipusim.ipu.graph.prices.passes import StageWork, work_of_stage
from ipusim.ipu.graph.prices.rules import work_of_update
from ipusim.ipu.graph.prices.view import SAME_VALUE, is_constant
from ipusim.ipu.graph.split import split_body
from ipusim.ipu.graph.stage_passes import Constants, StagePasses
from ipusim.ipu.graph.update import GraphUpdate

#: Bytes per element in a stage without floating-point values.
_DEFAULT_ITEMSIZE = 4


class OutfeedSum(NamedTuple):
    """Elements that an accumulated outfeed adds per micro-batch, and bytes per element of the sum."""

    elements: int
    itemsize: int


def summing_work(outfeed_sum: OutfeedSum | None, itemsize: int) -> Iterator[Work]:
    """Yield the work of adding a micro-batch's results to an outfeed's sum.

    Results and sum are read, and the sum is written.
    """
    if outfeed_sum is None:
        return
    sram_bytes = outfeed_sum.elements * (itemsize + 2 * outfeed_sum.itemsize)
    yield Work(
        vector=VectorWork(outfeed_sum.elements), sram_bytes=sram_bytes, itemsize=max(itemsize, outfeed_sum.itemsize)
    )


@dataclass(frozen=True, eq=False)
class ObservedStage:
    """One observed micro-batch of a stage.

    Attributes:
        stage_cut: the stage.
        work: work of the passes.
        takes, gives, keeps, returns: values received, sent on, kept for the backward pass, and sent back.
        nodes: nodes of both passes.
        training: whether the stage has a backward pass.
        forward_collectives, backward_collectives: collectives called by the passes.
        forward_host_calls, backward_host_calls: host calls in the passes.
        tables: bytes moved by look-ups in host tables.
        stash_bytes: bytes kept on the IPU for the backward pass.
    """

    stage_cut: StageCut
    work: StageWork
    takes: tuple[Any, ...]
    gives: tuple[Any, ...]
    keeps: tuple[Any, ...]
    returns: tuple[Any, ...]
    nodes: Sequence[ObservedNode]
    training: bool
    forward_collectives: tuple[models.CollectiveCall, ...] = ()
    backward_collectives: tuple[models.CollectiveCall, ...] = ()
    forward_host_calls: tuple[models.HostCall, ...] = ()
    backward_host_calls: tuple[models.HostCall, ...] = ()
    tables: models.TableBytes = field(default_factory=models.TableBytes)
    stash_bytes: int = 0


def observe(
    trace: Trace, variables: Mapping[str, Array], inputs: Sequence[Any], constants: Constants
) -> list[ObservedStage]:
    """Run a micro-batch, ``inputs`` of the first stage, through all stages under observation.

    ``variables`` are values by shared name; ``constants`` are values of tensors from outside the step.
    """
    cuts, uncounted = cut_stages(trace), frozenset(trace.uncounted)
    graph = with_sums(trace.graph, cuts)
    observation = Observation(graph)
    stages = [StagePasses(graph, stage_cut, observation) for stage_cut in cuts]
    training = bool(trace.gradients)
    state = {name: Variable(name, np.array(value)) for name, value in variables.items()}
    value_of = dict(zip(cuts[0].takes, inputs, strict=True))
    forward_runs: list[tuple[Any, ...]] = []
    calls: list[models.CollectiveCall]
    look_ups: list[models.TableBytes]
    scopes = HostScopes(trace.graph)
    with np.errstate(all="ignore"):
        for stage in stages:
            values = tuple(value_of[tensor] for tensor in stage.stage_cut.takes)
            with functions.Surrounded(collectives=(calls := []), look_ups=(look_ups := [])):
                outputs, stash = stage.forward(Invocation(state), values, constants)
            value_of.update(zip(stage.stage_cut.gives, outputs, strict=True))
            forward_nodes = [entry for entry in observation.take() if entry.node.name not in uncounted]
            tables = sum(look_ups, models.TableBytes())
            forward_runs.append((values, outputs, stash, forward_nodes, tuple(calls), tables))
        result: list[ObservedStage] = []
        gradient_of: dict[Output, Any] = {}
        for stage, (values, outputs, stash, forward_nodes, forward_calls, tables) in zip(
            reversed(stages), reversed(forward_runs), strict=True
        ):
            calls, input_gradients = [], ()
            if training:
                arriving = [gradient_of[tensor] for tensor in stage.stage_cut.arrives]
                with functions.Surrounded(collectives=calls, look_ups=[]):
                    input_gradients, _ = stage.backward(Invocation(state), stash, arriving, constants)
                gradient_of.update(zip(stage.stage_cut.returns, input_gradients, strict=True))
            backward_nodes = observation.take()
            ipu_forward, ipu_backward = scopes.outside(forward_nodes), scopes.outside(backward_nodes)
            price = work_of_stage if training else _work_of_body
            observed = ObservedStage(
                stage.stage_cut,
                price(graph, stage.stage_cut, ipu_forward, ipu_backward),
                values,
                outputs,
                stash,
                input_gradients,
                [*ipu_forward, *ipu_backward],
                training,
                forward_calls,
                tuple(calls),
                *_host_calls(graph, scopes, stage.stage_cut, forward_nodes, backward_nodes),
                tables,
                _bytes(_stash_on_ipu(stage.stage_cut, stash, scopes, ipu_backward)),
            )
            result.append(observed)
    return result[::-1]


def _host_calls(
    graph: Graph,
    scopes: HostScopes,
    stage_cut: StageCut,
    forward_nodes: Sequence[ObservedNode],
    backward_nodes: Sequence[ObservedNode],
) -> tuple[tuple[models.HostCall, ...], tuple[models.HostCall, ...]]:
    """Return the host calls in forward and backward pass of a stage."""
    if not scopes.has_blocks:
        return (), ()
    calls = HostCalls(graph, scopes, stage_cut)
    forward_calls = calls.of_pass(
        forward_nodes, stage_cut.gives, lambda nodes: work_of_stage(graph, stage_cut, nodes, []).forward
    )
    outputs = (*stage_cut.returns, *stage_cut.gradients.values())
    return forward_calls, calls.of_pass(
        backward_nodes, outputs, lambda nodes: work_of_stage(graph, stage_cut, forward_nodes, nodes).backward
    )


def _stash_on_ipu(
    stage_cut: StageCut, stash: Sequence[Any], scopes: HostScopes, backward_nodes: Sequence[ObservedNode]
) -> Iterator[Any]:
    """Yield kept values that the backward pass reads on the IPU, not on the host."""
    read = {tensor for entry in backward_nodes for tensor in entry.node.inputs}
    for tensor, value in zip(stage_cut.keeps, stash, strict=True):
        if not scopes.has_blocks or tensor in read:
            yield value


def _work_of_body(
    graph: Graph, stage_cut: StageCut, nodes: Sequence[ObservedNode], _: Sequence[ObservedNode]
) -> StageWork:
    """Return the work of a loop's body; gradients and weight updates inside the body count as forward work."""
    parts = split_body(graph, stage_cut.forward)
    gradient, update = set(parts.gradient), set(parts.update)
    forward_nodes = [entry for entry in nodes if entry.node.name not in gradient | update]
    work = work_of_stage(graph, stage_cut, forward_nodes, [entry for entry in nodes if entry.node.name in gradient])
    constancy: dict[str, bool] = {}
    update_nodes = [
        entry for entry in nodes if entry.node.name in update and not is_constant(graph.nodes, entry.node, constancy)
    ]
    update_work = tuple(price for entry in update_nodes if (price := work_of_update(entry)) is not None)
    return replace(work, forward=(*work.forward, *work.backward, *update_work), backward=())


def profile_stage(
    observed: ObservedStage,
    name: str,
    *,
    is_last: bool,
    trained_variables: Mapping[str, Array],
    owned: Iterable[str],
    untrained: Mapping[str, Array],
    update: GraphUpdate | None,
    accumulators: Mapping[str, np.dtype[Any]],
    reduction: models.Reduction,
    graph: Graph,
    sections: Sections | None = None,
    outfeed_sum: OutfeedSum | None = None,
) -> models.StageProfile:
    """Return a stage's profile for one micro-batch.

    Args:
        observed: stage after one run.
        name: name of the stage.
        is_last: whether no stage follows.
        trained_variables: trained variables of the stage by shared name.
        owned: names of trained variables that no earlier stage has.
        untrained: other variables that no earlier stage has.
        update: weight update; None in inference.
        accumulators: gradient accumulator dtype by variable.
        reduction: accumulation rule for gradients.
        graph: the graph.
        sections: forward pass divided at checkpoints; None if nothing is recomputed.
        outfeed_sum: size of the outfeed's sum, if an execution accumulates the last stage's results; else None.
    """
    itemsize = max((value.itemsize for value in trained_variables.values()), default=_DEFAULT_ITEMSIZE)
    profile = models.StageProfile(
        name=name,
        forward=(
            *observed.work.forward,
            *summing_work(outfeed_sum, _itemsize([*trained_variables.values(), *observed.takes])),
        ),
        output_bytes=0 if is_last else _bytes(observed.gives),
        label_bytes=0 if is_last else _bytes(value for value in observed.gives if np.asarray(value).dtype.kind != "f"),
        parameter_bytes=_bytes(trained_variables[variable] for variable in owned),
        input_bytes=_bytes(observed.takes),
        working_bytes=_most_touched(observed),
        layers=tuple(layer.name for layer in observed.work.layers),
        forward_collectives=observed.forward_collectives,
        forward_host_calls=observed.forward_host_calls,
        tables=observed.tables if observed.training else replace(observed.tables, gradients=0),
        untrained_bytes=_bytes(untrained.values()),
    )
    if not observed.training or update is None:
        return profile
    sizes = {
        variable: models.VariableSize(value.size, value.itemsize, accumulators[variable].itemsize)
        for variable, value in trained_variables.items()
    }
    profile = _with_backward_pass(profile, observed, trained_variables, sizes, reduction)
    if sections is not None:
        profile = _with_checkpoints(profile, observed, graph, sections, is_last=is_last)
    return models.with_variables(profile, sizes.values(), [sizes[variable] for variable in owned], update, itemsize)


def _with_backward_pass(
    profile: models.StageProfile,
    observed: ObservedStage,
    trained_variables: Mapping[str, Array],
    sizes: Mapping[str, models.VariableSize],
    reduction: models.Reduction,
) -> models.StageProfile:
    """Return a profile extended by the backward pass, including accumulation of gradients."""
    accumulation = models.accumulation_work(
        [sizes[variable] for variable in observed.stage_cut.gradients], None, reduction
    )
    return replace(
        profile,
        backward=(*observed.work.backward, *accumulation),
        backward_collectives=observed.backward_collectives,
        backward_host_calls=observed.backward_host_calls,
        backward_input=observed.work.backward,
        backward_weights=accumulation,
        rest_bytes=_bytes(trained_variables.values()),
        gradient_bytes=_bytes(observed.returns),
        stash_bytes=observed.stash_bytes,
        weight_gradient_bytes=max((value.nbytes for value in trained_variables.values()), default=0),
    )


def computed_again(stage_cut: StageCut, sections: Sections, *, is_last: bool) -> frozenset[Output]:
    """Return the tensors that a stage recomputes; the last stage stops at the last checkpoint.

    Args:
        stage_cut: the stage.
        sections: forward pass of the stage divided at checkpoints.
        is_last: whether no stage follows.
    """
    end = len(sections.names) - is_last
    return frozenset(tensor for tensor in stage_cut.keeps if 0 <= sections.section_of(tensor.node) < end)


def _with_checkpoints(
    profile: models.StageProfile, observed: ObservedStage, graph: Graph, sections: Sections, *, is_last: bool
) -> models.StageProfile:
    """Add recomputed work, checkpoint bytes, and the most bytes that a recomputed section adds to the checkpoints.

    The stage keeps the inputs of recomputed sections, and in the last stage the whole final section.
    """
    count = len(sections.names) - is_last
    stash = [0] * len(sections.names)
    sizes = dict(zip(observed.stage_cut.keeps, map(bytes_of, observed.keeps), strict=True))
    makers = {entry.node.name: entry.node for entry in observed.nodes}
    sources: set[Output] = set()
    for tensor, size in sizes.items():
        source = source_of(makers, tensor, SAME_VALUE)
        if source not in sources:
            stash[sections.section_of(tensor.node)] += size
        sources.add(source)
    for number, values in enumerate(sections.values, 1):  # inputs of a section come from the previous section
        stash[number] += sum(sizes.get(tensor, 0) for tensor in values)
    first_section = next((number for number in range(count) if stash[number]), count)
    recomputed_names = frozenset().union(*sections.names[first_section:count])
    recomputed_nodes = [entry for entry in observed.nodes if entry.node.name in recomputed_names]
    outputs = {entry.node.name: entry.outputs[0].nbytes for entry in observed.nodes if entry.outputs}
    inner = sections.values[:-1] if is_last else sections.values
    read = {tensor for names in sections.names[:count] for name in names for tensor in graph.nodes[name].inputs}
    input_sizes = [
        bytes_of(value)
        for tensor, value in zip(observed.stage_cut.takes, observed.takes, strict=True)
        if not is_last or tensor in read
    ]
    final_section_bytes = stash[-1] if is_last else 0
    return replace(
        profile,
        recompute=work_of_stage(graph, observed.stage_cut, recomputed_nodes, []).forward,
        checkpoint_bytes=sum(input_sizes)
        + sum(outputs[output.node] for values in inner for output in values)
        + final_section_bytes,
        cluster_bytes=max([0, *(size - final_section_bytes for size in stash[first_section:count])]),
    )


def _itemsize(values: Iterable[Any]) -> int:
    """Return the byte width of the widest floating-point element."""
    dtypes = [np.asarray(value).dtype for value in values]
    return max((dtype.itemsize for dtype in dtypes if dtype.kind == "f"), default=_DEFAULT_ITEMSIZE)


def _bytes(values: Iterable[Any]) -> int:
    return sum(map(bytes_of, values))


def _most_touched(observed: ObservedStage) -> int:
    """Return the most bytes moved by a single node, excluding weights and their gradients."""
    makers = {entry.node.name: entry.node for entry in observed.nodes}
    gradients = {source_of(makers, tensor, SAME_VALUE) for tensor in observed.stage_cut.gradients.values()}

    def traffic(entry: ObservedNode) -> int:
        read = [
            form.nbytes
            for tensor, form in zip(entry.node.inputs, entry.inputs, strict=True)
            if (maker := makers.get(source_of(makers, tensor, SAME_VALUE).node)) is None
            or maker.type != "ReadVariableOp"
        ]
        results = zip(entry.node.outputs, entry.outputs, strict=True)
        return sum(read) + sum(form.nbytes for tensor, form in results if tensor not in gradients)

    moving = (entry for entry in observed.nodes if entry.node.type not in FREE)
    return max(map(traffic, moving), default=0)
