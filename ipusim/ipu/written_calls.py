"""The calls of a stage's function, written down while it runs once: which layers, on which arrays and variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from autograd.tracer import isbox, new_box, trace_stack

from ipusim.ipu.shards import RecordedNode, boxing
from ipusim.ipu.stage_call import Inputs
from ipusim.ipu.traced import TracedStage
from ipusim.model.functions.layer_call import Call, run_layer
from ipusim.model.functions.traced_array import refusing_plain_numpy
from ipusim.model.functions.untrained import Untrained, holding
from ipusim.model.functions.users_code import Failing
from ipusim.model.functions.variables import looking_up
from ipusim.model.stages.function_stage import as_results


@dataclass(frozen=True, eq=False)
class WrittenStage:
    """What one run of a stage's function did.

    Attributes:
        stage: the stage.
        takes: the node of each array that came in; None for those of the program's own inputs.
        calls: all calls of functions on them and on variables, in order.
        gives: the node of each array that left; None for what depends on nothing that is written down.
    """

    stage: TracedStage
    takes: tuple[RecordedNode | None, ...]
    calls: tuple[RecordedNode, ...]
    gives: tuple[RecordedNode | None, ...]


def written(stage: TracedStage, inputs: Inputs) -> WrittenStage:
    """Run a stage's function on its first micro-batch; the program's own ``inputs``, as they are now, stay as they are.

    Raises ModelError where the function fails on arrays that are traced.
    """
    calls: list[RecordedNode] = []
    own = len(inputs.values) if not stage.position else 0
    running, inputs.running = inputs.running, False
    try:
        with (
            Failing(f"stage {stage.stage.name!r} fails where its inputs are written down"),
            refusing_plain_numpy(),
            trace_stack.new_trace() as trace,
            np.errstate(all="ignore"),
        ):
            boxes = [new_box(array, trace, RecordedNode.new_root(calls)) for array in stage.inputs[own:]]
            with looking_up(boxing(calls, trace)), holding(Untrained({}, takes_new=True)):
                results = as_results(stage.stage.function(*inputs.values[:own], *boxes))
    finally:
        inputs.running = running
    takes = (*(None for _ in range(own)), *(box._node for box in boxes))
    return WrittenStage(stage, takes, tuple(calls), tuple(each._node if isbox(each) else None for each in results))


def layer_of(node: RecordedNode) -> Call | None:
    """Return the layer, or loss, that a call runs; None for another function."""
    return node.arguments[0] if node.function is run_layer else None


def arrays_of(node: RecordedNode) -> Sequence[RecordedNode | None]:
    """Return the node of each array that a layer is called on: its input, of a loss the labels, its parameters."""
    known = dict(zip(node.places, node.parents, strict=True))
    return [known.get(place) for place in range(1, len(node.arguments))]
