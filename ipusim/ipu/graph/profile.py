"""Profiles of traced stages: work, memory and transferred bytes, from one observed micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ipusim.api import Array, VectorWork, Work, functions, models
from ipusim.ipu.graph.checkpoints import Sections
from ipusim.ipu.graph.cut import StageCut, Trace, cut, with_sums
from ipusim.ipu.graph.executable import Invocation
from ipusim.ipu.graph.host_scopes import HostCalls, HostScopes
from ipusim.ipu.graph.node import Graph, Node, Output, Variable
from ipusim.ipu.graph.prices.nodes import FREE
from ipusim.ipu.graph.prices.observed import Observation, ObservedNode, form_of
from ipusim.ipu.graph.prices.passes import StageWork, work_of_stage
from ipusim.ipu.graph.prices.rules import work_of_update
from ipusim.ipu.graph.prices.view import SAME_VALUE, is_constant
from ipusim.ipu.graph.split import split
from ipusim.ipu.graph.stage_passes import Constants, StagePasses
from ipusim.ipu.graph.update import GraphUpdate

#: Bytes per element for a stage without floating-point values.
_DEFAULT_ITEMSIZE = 4


class Summed(NamedTuple):
    """Elements that an accumulated outfeed adds per micro-batch, and bytes per element of the sum."""

    elements: int
    itemsize: int


def summing_work(summed: Summed | None, itemsize: int) -> Iterator[Work]:
    """Yield the work of adding a micro-batch's results to an outfeed's sum.

    Results and sum are read, and the sum is written.
    """
    if summed is None:
        return
    moved = summed.elements * (itemsize + 2 * summed.itemsize)
    yield Work(vector=VectorWork(summed.elements), sram_bytes=moved, itemsize=max(itemsize, summed.itemsize))


@dataclass(frozen=True, eq=False)
class ObservedStage:
    """One observed micro-batch of a stage.

    Attributes:
        cut: the stage.
        work: work of the passes.
        takes, gives, keeps, returns: values received, sent on, kept for the backward pass, and sent back.
        seen: nodes of both passes.
        training: whether the stage has a backward pass.
        forward_collectives, backward_collectives: collectives called by the passes.
        forward_host_calls, backward_host_calls: host calls in the passes.
        tables: bytes moved by look-ups in host tables.
        stash_bytes: bytes kept on the IPU for the backward pass.
    """

    cut: StageCut
    work: StageWork
    takes: tuple[Any, ...]
    gives: tuple[Any, ...]
    keeps: tuple[Any, ...]
    returns: tuple[Any, ...]
    seen: Sequence[ObservedNode]
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
    """Run a micro-batch through all stages under observation.

    Args:
        trace: the traced step.
        variables: values of all variables by shared name.
        inputs: input values of the first stage.
        constants: values of tensors from outside the step.
    """
    cuts, uncounted = cut(trace), frozenset(trace.uncounted)
    graph = with_sums(trace.graph, cuts)
    observation = Observation(graph)
    stages = [StagePasses(graph, one, observation) for one in cuts]
    training = bool(trace.gradients)
    now = {name: Variable(name, np.array(value)) for name, value in variables.items()}
    known = dict(zip(cuts[0].takes, inputs, strict=True))
    ahead: list[tuple[Any, ...]] = []
    calls: list[models.CollectiveCall]
    moved: list[models.TableBytes]
    scopes = HostScopes(trace.graph)
    with np.errstate(all="ignore"):
        for stage in stages:
            values = tuple(known[tensor] for tensor in stage.cut.takes)
            with functions.Surrounded(collectives=(calls := []), look_ups=(moved := [])):
                given, kept = stage.forward(Invocation(now), values, constants)
            known.update(zip(stage.cut.gives, given, strict=True))
            seen = [each for each in observation.take() if each.node.name not in uncounted]
            ahead.append((values, given, kept, seen, tuple(calls), sum(moved, models.TableBytes())))
        result: list[ObservedStage] = []
        back: dict[Output, Any] = {}
        for stage, (values, given, kept, seen, called, tables) in zip(reversed(stages), reversed(ahead), strict=True):
            calls, returned = [], ()
            if training:
                arriving = [back[tensor] for tensor in stage.cut.arrives]
                with functions.Surrounded(collectives=calls, look_ups=[]):
                    returned, _ = stage.backward(Invocation(now), kept, arriving, constants)
                back.update(zip(stage.cut.returns, returned, strict=True))
            behind = observation.take()
            of_stage = work_of_stage if training else _work_of_body
            own_seen, own_behind = ([each for each in some if not scopes.of(each.node.name)] for some in (seen, behind))
            one = ObservedStage(
                stage.cut,
                of_stage(graph, stage.cut, own_seen, own_behind),
                values,
                given,
                kept,
                returned,
                [*own_seen, *own_behind],
                training,
                called,
                tuple(calls),
                *_host_calls(graph, scopes, stage.cut, seen, behind),
                tables,
                _bytes(_staying(stage.cut, kept, scopes, own_behind)),
            )
            result.append(one)
    return result[::-1]


def _host_calls(
    graph: Graph, scopes: HostScopes, one: StageCut, seen: Sequence[ObservedNode], behind: Sequence[ObservedNode]
) -> tuple[tuple[models.HostCall, ...], tuple[models.HostCall, ...]]:
    """Return the host calls in forward and backward pass of a stage."""
    if not scopes.any:
        return (), ()
    calls = HostCalls(graph, scopes, one)
    ahead = calls.of_pass(seen, one.gives, lambda own: work_of_stage(graph, one, own, []).forward)
    leaving = (*one.returns, *one.gradients.values())
    return ahead, calls.of_pass(behind, leaving, lambda own: work_of_stage(graph, one, seen, own).backward)


def _staying(one: StageCut, kept: Sequence[Any], scopes: HostScopes, behind: Sequence[ObservedNode]) -> Iterator[Any]:
    """Yield kept values that the backward pass reads on the IPU, not on the host."""
    read = {tensor for each in behind for tensor in each.node.inputs}
    for tensor, value in zip(one.keeps, kept, strict=True):
        if not scopes.any or tensor in read:
            yield value


def _work_of_body(graph: Graph, one: StageCut, seen: Sequence[ObservedNode], _: Sequence[ObservedNode]) -> StageWork:
    """Return the work of a pass containing gradients and weight updates, counted as forward work."""
    parts = split(graph, one.forward)
    gradient, update = set(parts.gradient), set(parts.update)
    ahead = [each for each in seen if each.node.name not in gradient | update]
    work = work_of_stage(graph, one, ahead, [each for each in seen if each.node.name in gradient])
    known: dict[str, bool] = {}
    behind = [each for each in seen if each.node.name in update and not is_constant(graph.nodes, each.node, known)]
    more = tuple(found for each in behind if (found := work_of_update(each)) is not None)
    return replace(work, forward=(*work.forward, *work.backward, *more), backward=())


def profile_stage(
    observed: ObservedStage,
    name: str,
    *,
    is_last: bool,
    trained: Mapping[str, Array],
    owned: Iterable[str],
    untrained: Mapping[str, Array],
    update: GraphUpdate | None,
    accumulators: Mapping[str, np.dtype[Any]],
    reduction: models.Reduction,
    graph: Graph,
    sections: Sections | None = None,
    summed: Summed | None = None,
) -> models.StageProfile:
    """Return a stage's profile for one micro-batch.

    Args:
        observed: stage after one run.
        name: name of the stage.
        is_last: whether no stage follows.
        trained: trained variables of the stage by shared name.
        owned: names of trained variables not owned by an earlier stage.
        untrained: other variables not owned by an earlier stage.
        update: weight update; None in inference.
        accumulators: gradient accumulator dtype by variable.
        reduction: accumulation rule for gradients.
        graph: the graph.
        sections: forward pass divided at checkpoints; None without recomputation.
        summed: results of the last stage that an execution accumulates; None without accumulation.
    """
    itemsize = max((value.itemsize for value in trained.values()), default=_DEFAULT_ITEMSIZE)
    profile = models.StageProfile(
        name=name,
        forward=(*observed.work.forward, *summing_work(summed, _itemsize([*trained.values(), *observed.takes]))),
        output_bytes=0 if is_last else _bytes(observed.gives),
        label_bytes=0 if is_last else _bytes(value for value in observed.gives if np.asarray(value).dtype.kind != "f"),
        parameter_bytes=_bytes(trained[each] for each in owned),
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
        each: models.VariableSize(value.size, value.itemsize, accumulators[each].itemsize)
        for each, value in trained.items()
    }
    profile = _with_backward_pass(profile, observed, trained, sizes, reduction)
    if sections is not None:
        profile = _with_checkpoints(profile, observed, graph, sections, is_last=is_last)
    return models.with_variables(profile, sizes.values(), [sizes[each] for each in owned], update, itemsize)


def _with_backward_pass(
    profile: models.StageProfile,
    observed: ObservedStage,
    trained: Mapping[str, Array],
    sizes: Mapping[str, models.VariableSize],
    reduction: models.Reduction,
) -> models.StageProfile:
    """Return a profile extended by the backward pass, including accumulation of gradients."""
    adding = models.accumulation_work([sizes[each] for each in observed.cut.gradients], None, reduction)
    return replace(
        profile,
        backward=(*observed.work.backward, *adding),
        backward_collectives=observed.backward_collectives,
        backward_host_calls=observed.backward_host_calls,
        backward_input=observed.work.backward,
        backward_weights=adding,
        rest_bytes=_bytes(trained.values()),
        gradient_bytes=_bytes(observed.returns),
        stash_bytes=observed.stash_bytes,
        weight_gradient_bytes=max((value.nbytes for value in trained.values()), default=0),
    )


def computed_again(cut: StageCut, sections: Sections, *, is_last: bool) -> frozenset[Output]:
    """Return the tensors that a stage recomputes; the last stage stops at the last checkpoint.

    Args:
        cut: the stage.
        sections: forward pass of the stage divided at checkpoints.
        is_last: whether no stage follows.
    """
    end = len(sections.names) - is_last
    return frozenset(tensor for tensor in cut.keeps if 0 <= sections.section_of(tensor.node) < end)


def _with_checkpoints(
    profile: models.StageProfile, observed: ObservedStage, graph: Graph, sections: Sections, *, is_last: bool
) -> models.StageProfile:
    """Return a profile with recomputed work, checkpoints and peak of live bytes.

    The stage keeps the inputs of recomputed sections, and in the last stage the whole final section.
    """
    count = len(sections.names) - is_last
    stash = [0] * len(sections.names)
    kept = dict(zip(observed.cut.keeps, (form_of(value).nbytes for value in observed.keeps), strict=True))
    makers = {each.node.name: each.node for each in observed.seen}
    counted: set[Output] = set()
    for tensor, size in kept.items():
        source = _handed_on(makers, tensor)
        if source not in counted:
            stash[sections.section_of(tensor.node)] += size
        counted.add(source)
    for number, values in enumerate(sections.values, 1):  # inputs of a section come from the previous section
        stash[number] += sum(kept.get(tensor, 0) for tensor in values)
    first = next((number for number in range(count) if stash[number]), count)
    again = frozenset().union(*sections.names[first:count])
    seen = [each for each in observed.seen if each.node.name in again]
    outputs = {each.node.name: each.outputs[0].nbytes for each in observed.seen if each.outputs}
    inner = sections.values[:-1] if is_last else sections.values
    read = {tensor for names in sections.names[:count] for name in names for tensor in graph.nodes[name].inputs}
    taken = [
        form_of(value).nbytes
        for tensor, value in zip(observed.cut.takes, observed.takes, strict=True)
        if not is_last or tensor in read
    ]
    tail = stash[-1] if is_last else 0
    return replace(
        profile,
        recompute=work_of_stage(graph, observed.cut, seen, []).forward,
        checkpoint_bytes=sum(taken) + sum(outputs[each.node] for values in inner for each in values) + tail,
        cluster_bytes=max([0, *(size - tail for size in stash[first:count])]),
    )


def _itemsize(values: Iterable[Any]) -> int:
    """Return the byte width of the widest floating-point element."""
    found = [np.asarray(value).dtype for value in values]
    return max((dtype.itemsize for dtype in found if dtype.kind == "f"), default=_DEFAULT_ITEMSIZE)


def _bytes(values: Iterable[Any]) -> int:
    return sum(form_of(value).nbytes for value in values)


def _most_touched(observed: ObservedStage) -> int:
    """Return the most bytes moved by a single node, excluding weights and their gradients."""
    makers = {each.node.name: each.node for each in observed.seen}
    gradients = {_handed_on(makers, tensor) for tensor in observed.cut.gradients.values()}

    def touched(each: ObservedNode) -> int:
        read = [
            form.nbytes
            for tensor, form in zip(each.node.inputs, each.inputs, strict=True)
            if (maker := makers.get(_handed_on(makers, tensor).node)) is None or maker.type != "ReadVariableOp"
        ]
        written = zip(each.node.outputs, each.outputs, strict=True)
        return sum(read) + sum(form.nbytes for tensor, form in written if tensor not in gradients)

    moving = (each for each in observed.seen if each.node.type not in FREE)
    return max(map(touched, moving), default=0)


def _handed_on(makers: Mapping[str, Node], tensor: Output) -> Output:
    """Return a tensor's source, skipping nodes that forward values unchanged."""
    node = makers.get(tensor.node)
    while node is not None and node.type in SAME_VALUE:
        tensor = node.inputs[0]
        node = makers.get(tensor.node)
    return tensor
