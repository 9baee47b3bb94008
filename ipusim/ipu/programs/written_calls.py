"""The calls of a stage's function, written down while it runs once, and the names of its layers and scopes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from autograd.tracer import isbox, new_box, trace_stack

from ipusim.api import functions as core_functions
from ipusim.api import models, timelines
from ipusim.base.errors import IpusimError
from ipusim.ipu.runtime.functions import TracedFunctions
from ipusim.ipu.runtime.shards import RecordedNode, boxing
from ipusim.ipu.runtime.stage_call import Inputs
from ipusim.ipu.runtime.traced import TracedStage


@dataclass(frozen=True, eq=False)
class WrittenStage:
    """The record of one run of a stage's function.

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
            core_functions.Failing(f"stage {stage.stage.name!r} fails where its inputs are written down"),
            core_functions.refusing_plain_numpy(),
            trace_stack.new_trace() as trace,
            np.errstate(all="ignore"),
        ):
            boxes = [new_box(array, trace, RecordedNode.new_root(calls)) for array in stage.inputs[own:]]
            untrained = core_functions.Untrained({}, takes_new=True)
            with core_functions.Surrounded(lookup=boxing(calls, trace), untrained=untrained):
                results = models.as_results(stage.stage.function(*inputs.values[:own], *boxes))
    finally:
        inputs.running = running
    takes = (*(None for _ in range(own)), *(box._node for box in boxes))
    return WrittenStage(
        stage, takes, tuple(calls), tuple(result._node if isbox(result) else None for result in results)
    )


def layer_of(node: RecordedNode) -> core_functions.Call | None:
    """Return the layer, or loss, that a call runs; None for another function."""
    return node.arguments[0] if node.function is core_functions.run_layer else None


def arrays_of(node: RecordedNode) -> Sequence[RecordedNode | None]:
    """Return the node of each array that a layer is called on: its input, of a loss the labels, its parameters."""
    known = dict(zip(node.places, node.parents, strict=True))
    return [known.get(index) for index in range(1, len(node.arguments))]


#: Letters that a name in a scenario may not have, and how long it may be.
_OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST: Final = 64
#: The number that a framework puts behind a name of its own.
_NUMBER: Final = re.compile(r"_\d+$")


def short_names(names: Sequence[str], frameworks: Collection[str] = ()) -> tuple[str, ...]:
    """Return a name for each layer, of its name with all scopes; those of the framework's own choice are left out.

    It is the innermost scope, with as many of those around it as tell it from the others. Names that stay the same
    get a number.

    >>> short_names(["FCModel/dense256/dense", "FCModel/logits/dense_1", "a/relu", "b/relu"], ["dense"])
    ('dense256', 'logits', 'a_relu', 'b_relu')
    """
    parts = _parts(names, frameworks)
    result: list[str] = []
    for own in parts:
        depths = [depth for depth in range(1, len(own)) if sum(part[-depth:] == own[-depth:] for part in parts) == 1]
        name = plain_name("_".join(own[-depths[0] :] if depths else own), "layer")
        new, number = name, 0
        while new in result:
            number += 1
            new = f"{name[: _LONGEST - 5]}_{number}"
        result.append(new)
    return tuple(result)


def plain_name(text: str, instead: str) -> str:
    """Return a text as a legal name of a scenario; ``instead`` is the prefix of a text that is no legal name."""
    name = _OTHERS.sub("_", text).strip("_-")
    return (name if name and not name[0].isdigit() else f"{instead}{name}")[:_LONGEST]


def _parts(names: Sequence[str], frameworks: Collection[str]) -> list[list[str]]:
    """Return scopes and own name of each layer, without the latter where the framework chose it and scopes tell."""
    parts = [[part for part in name.split("/") if part] for name in names]
    scopes = [own[:-1] for own in parts]
    return [
        own[:-1] if own[:-1] and _NUMBER.sub("", own[-1]) in frameworks and scopes.count(own[:-1]) == 1 else own
        for own in parts
    ]


def scopes_of(functions: TracedFunctions) -> tuple[str, ...]:
    """Return the layers of each stage as one text, and the scopes of the variables of other functions."""
    try:
        stages = [written(stage, functions.traced.inputs) for stage in functions.traced.stages]
    except IpusimError:  # what a stage has run for every micro-batch is not refused for its names
        return ()
    result = short_names_of([list(dict.fromkeys(_scoped(stage))) for stage in stages])
    return tuple(map(timelines.layers_text, result)) if any(result) else ()


def short_names_of(scoped: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Return short names of the layers of each stage, of their names with all scopes."""
    from ipusim.ipu.tensorflow.keras import core_layer, layers  # noqa: F401, PLC0415 - layers are its subclasses

    chosen = {subclass.kind for subclass in core_layer.CoreLayer.__subclasses__()}
    names = iter(short_names([name for stage in scoped for name in stage], chosen))
    return tuple(tuple(next(names) for _ in stage) for stage in scoped)


def _scoped(stage: WrittenStage) -> Iterator[str]:
    """Yield the name of each called layer, and the scope of each variable that another function is called with.

    A layer without a name is called by its kind.
    """
    for node in stage.calls:
        layer = layer_of(node)
        scopes = [parent.variable[0].rpartition("/")[0] for parent in node.parents if parent.variable is not None]
        if layer is None:
            yield from filter(None, scopes)
        else:
            yield layer.draws_as or next(filter(None, scopes), "") or getattr(layer.layer, "kind", "layer")
