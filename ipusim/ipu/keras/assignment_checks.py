"""Check assignments of layers and calls to pipeline stages, by Graphcore's rules and with Graphcore's messages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from ipusim.base.errors import ProgramError

#: Maximum number of missing stages in a message.
_MAX_LISTED_STAGES: Final = 16


def check_size(value: Any, size: int, number: str, invocation: str, end: str) -> None:
    """Check a pipeline stage assignment, a list of ``size`` items; raises ProgramError with Graphcore's message.

    Args:
        value: the assignment.
        size: required number of items.
        number, invocation, end: words of the message for the number of items and for an item.
    """
    if not isinstance(value, list):
        raise ProgramError("`pipeline_stage_assignment` needs to be a list")
    if len(value) != size:
        raise ProgramError(
            f"The size of the provided `pipeline_stage_assignment` ({len(value)}) does not match the {number} in the "
            f"model (currently {size}). {invocation} needs to be assigned to a pipeline stage{end}"
        )


def check_in_order(assignment: Sequence[Any], layers: Sequence[Any]) -> None:
    """Refuse stages that are not consecutive; raises ProgramError with Graphcore's message."""
    previous_stage = 0
    for index, (item, layer) in enumerate(zip(assignment, layers, strict=True)):
        stage = item.pipeline_stage
        if stage is None:
            raise ProgramError(f"Layer {item.layer.name} has not been assigned a pipeline stage.")
        if item.layer is not layer:
            raise ProgramError(
                f"The provided assignment at index {index} `pipeline_stage_assignment` is for layer {item.layer.name}, "
                f"but the layer in the Sequential model at index {index} is {layer.name}."
            )
        if index == 0 and stage != 0:
            raise ProgramError(
                "The first layer in a pipelined sequential model needs to be assigned to the 0th pipeline stage, "
                f"however it was assigned to {stage}."
            )
        if stage not in (previous_stage, previous_stage + 1):
            raise ProgramError(
                f"Layer {layer.name} has been assigned to pipeline stage {stage}, however the previous layer in the "
                f"Sequential model was assigned to pipeline stage {previous_stage}. A layer in a Sequential model can "
                "only be assigned to the same pipeline stage as the previous layer or to the next pipeline stage."
            )
        previous_stage = stage


def checked_stages(assignment: Sequence[Any], calls: Sequence[Any]) -> list[int]:
    """Return the stages of calls; raises ProgramError with Graphcore's message if they form no pipeline."""
    stages: dict[int, int] = {}
    for item in assignment:
        if item.pipeline_stage is None:
            raise ProgramError(
                f"Layer {item.layer.name} with node index {item.node_index} has not been assigned a pipeline stage."
            )
        node = item.layer.inbound_nodes[item.node_index]
        if id(node) in stages:
            raise ProgramError(
                f"Duplicate assignment for layer {item.layer.name} with node index {item.node_index}. Each layer "
                "invocation can only be assigned to a single pipeline stage."
            )
        stages[id(node)] = item.pipeline_stage
    if any(id(node) not in stages for node in calls):
        raise ProgramError("The provided `pipeline_stage_assignment` is of layers of another model.")
    result = sorted(set(stages.values()))
    gaps = [
        str(item) for item in islice((item for item in range(result[-1]) if item not in result), _MAX_LISTED_STAGES)
    ]
    if gaps or result[0] < 0:
        raise ProgramError(
            f"Pipeline stages in the graph need to be strictly increasing, found pipeline stages "
            f"{', '.join(map(str, result))}, however the following pipeline stages are missing {', '.join(gaps)}."
        )
    for node in calls:
        for item in node.inputs:
            if item.node is not None and stages[id(item.node)] > stages[id(node)]:
                raise ProgramError(
                    f"Layer {node.layer.name} in pipeline stage {stages[id(node)]} has a dependency from a pipeline "
                    "stage which has not yet executed. Layers can only use outputs from current or previous pipeline "
                    "stages."
                )
    return [stages[id(node)] for node in calls]
