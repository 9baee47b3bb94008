"""Turn a loop body into a program of the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ipusim.api import analysis, pipelines
from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.graph.accumulation import Accumulation
from ipusim.ipu.graph.enqueued import EnqueueItem
from ipusim.ipu.graph.needed import runs_for_effect
from ipusim.ipu.graph.node import Graph, Node, Output
from ipusim.ipu.graph.registry import entry_of, value_of
from ipusim.ipu.graph.split import Shards, as_one_pass, as_training, shards_of, split_body
from ipusim.ipu.graph.traced_step import TracedStep
from ipusim.ipu.traced.device_program import DeviceProgram
from ipusim.ipu.traced.pipelines import outside_of
from ipusim.ipu.traced.queues import Infeed, Outfeed


def program_of_body(
    name: str,
    graph: Graph,
    body: set[str],
    options: Callable[[], Mapping[str, Any]],
    infeed: Infeed | None,
    carried: Sequence[str],
    iterations: int = 1,
    config: IPUConfig | None = None,
) -> DeviceProgram:
    """Return a body's program: a training step, or a forward pass that may change variables.

    Args:
        name: name of the program.
        graph: the graph.
        body: names of the body's nodes.
        options: returns the request's system options, keyed like a scenario.
        infeed: queue with one element per iteration.
        carried: shared names of the variables that hold loop values.
        iterations: iterations per run.
        config: configuration of the program; None for the active configuration.

    Raises:
        UnsupportedProgramError: if a sharded body sends to several outfeeds.
    """
    items = {node.name: entry.value for node in graph.nodes.values() if (entry := entry_of(node)) is not None}
    sending = [graph.nodes[node_name] for node_name in sorted(body) if isinstance(items.get(node_name), EnqueueItem)]
    result_node = _result_enqueue(graph, sending, body)
    queue, results = (None, []) if result_node is None else (items[result_node.name].queue, list(result_node.inputs))
    feeds = {name for name in body if infeed is not None and items.get(name) is infeed}
    nodes = body - ({result_node.name} if result_node is not None else set())
    accumulation = _accumulation(graph, nodes, iterations)
    step, shards = _traced_step(graph, nodes, feeds, results)
    if shards.stage_count > 1 and len({id(items[node.name].queue) for node in sending}) > 1:
        raise UnsupportedProgramError("body: expected one outfeed queue in a sharded loop, got several")
    if not step.update_nodes and accumulation.count > 1:
        raise UnsupportedProgramError(
            "body: expected an update operation for each accumulated gradient, and results that do not depend on "
            "gradients"
        )
    accumulators = {
        name: mark.dtype
        for name, tensor in step.accumulators.items()
        if (mark := value_of(graph.nodes[tensor.node], Accumulation)) is not None and mark.dtype is not None
    }
    return DeviceProgram(
        name,
        step,
        partial(_options, options, shards, accumulation, iterations),
        infeed=infeed,
        outfeed=queue,
        outfeed_settings=_outfeed_of(queue, len(results)),
        reduction=accumulation.reduction,
        outside=outside_of(step),
        carried=carried,
        accumulators=accumulators,
        config=config,
    )


def _outfeed_of(queue: Outfeed | None, results: int) -> pipelines.Outfeed:
    """Return the outfeed settings for a body with a given number of results."""
    names = (analysis.LOSS,) if results == 1 else tuple(f"output {number}" for number in range(results))
    return pipelines.Outfeed(
        names=names,
        mask=(False,) * results,
        element_bytes=0 if queue is None else queue.element_bytes,
        mode="ALL" if queue is None or queue.keeps_all else "LAST",
        buffer_depth=3 if queue is None else queue.buffer_depth,
    )


def _options(
    options: Callable[[], Mapping[str, Any]], shards: Shards, accumulation: Accumulation, iterations: int
) -> dict[str, Any]:
    """Return the request options for a body's program, keyed like a scenario."""
    system = dict(options())
    body_options = {
        "schedule": "single" if shards.stage_count == 1 else "sharded",
        "gradient_accumulation_count": accumulation.count,
        "repeat_count": iterations // accumulation.count,
        "reduction_method": accumulation.reduction,
        "device_mapping": list(shards.mapping),
    }
    return {**system, "pipeline": {**system.get("pipeline", {}), **accumulation.options, **body_options}}


def _traced_step(
    graph: Graph, nodes: set[str], feeds: set[str], results: Sequence[Output]
) -> tuple[TracedStep, Shards]:
    """Return a body as a training step or as one pass, and the placement of nodes.

    Only a training step has a separate weight update.
    """
    parts = split_body(graph, nodes - feeds)
    shards = shards_of(graph, {*parts.forward, *feeds})
    effects = {name for name in nodes if runs_for_effect(graph.nodes[name])}
    training = as_training(graph, parts, feeds, results, effects, shards)
    if training is not None:
        return training, shards
    shards = shards_of(graph, nodes)
    return as_one_pass(graph, nodes, feeds, results, shards), shards


def _accumulation(graph: Graph, nodes: set[str], iterations: int) -> Accumulation:
    """Return a body's gradient accumulation.

    Raises ProgramError with Graphcore's message if the count does not divide ``iterations``, and
    UnsupportedProgramError if several optimizers accumulate gradients.
    """
    accumulations = [
        accumulation
        for name in sorted(nodes)
        if (accumulation := value_of(graph.nodes[name], Accumulation)) is not None
    ]
    if len({id(accumulation.options) for accumulation in accumulations}) > 1:
        raise UnsupportedProgramError("body: expected one optimizer that accumulates gradients, got several")
    result = accumulations[0] if accumulations else Accumulation(1)
    if iterations % result.count:
        raise ProgramError(
            f"Detected a gradient accumulation operation with {result.count} number of mini batches inside a loop with "
            f"{iterations} iterations. It is required that the number of mini batches to accumulate evenly divides the "
            "number of loop iterations."
        )
    return result


def _result_enqueue(graph: Graph, sending: Sequence[Node], body: set[str]) -> Node | None:
    """Return the node that enqueues a loop's results; other enqueues are copies to the host inside a pass.

    The node is the first enqueue of the forward pass, else the first enqueue outside the update.
    """
    if not sending:
        return None
    order = {name: number for number, name in enumerate(graph.nodes)}
    enqueues = sorted(sending, key=lambda node: order[node.name])
    forward = set(split_body(graph, body).forward)
    forward_enqueues = [node for node in enqueues if node.name in forward]
    later_enqueues = [node for node in enqueues if node.name not in forward]
    update_enqueues = [
        node
        for node in later_enqueues
        if any(value_of(graph.nodes[tensor.node], Accumulation) for tensor in node.inputs)
    ]
    return (
        forward_enqueues[0]
        if forward_enqueues
        else next((node for node in later_enqueues if node not in update_enqueues), None)
    )
