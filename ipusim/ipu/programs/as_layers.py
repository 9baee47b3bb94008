"""The calls of a program's stages, written down while each runs once, and its layers in the keys of a scenario."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from autograd.tracer import isbox, new_box, trace_stack

from ipusim.api import Array, Job, layers, learning, models, runs, timelines
from ipusim.api import functions as core_functions
from ipusim.base.errors import IpusimError, UnsupportedProgramError
from ipusim.ipu.runtime.functions import TracedFunctions
from ipusim.ipu.runtime.shards import RecordedNode, boxing
from ipusim.ipu.runtime.stage_call import Inputs
from ipusim.ipu.runtime.traced import TracedStage
from ipusim.ipu.tensorflow.keras.rules import KerasMomentum

#: What stays with the program, in a scenario of its layers.
NOT_SAID: Final = (
    "Not carried over from the program: its data, in whose place synthetic data of their form stand, the first values",
    "of its variables, and what it changes from run to run, such as a learning rate, of which this is the last value.",
)


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


class NotLayersError(UnsupportedProgramError):
    """A program that does other things than to run layers, one after the other; the text says which."""


@dataclass(frozen=True, eq=False)
class Chained:
    """A layer, or the loss, in the chain of a program.

    Attributes:
        call: its call.
        variables: name and initial value of its variables, by the names that it has for them itself.
        input, labels: the arrays that it was called on; no labels but for a loss.
    """

    call: core_functions.Call
    variables: Mapping[str, tuple[str, Array]]
    input: Array
    labels: Array | None

    @property
    def scoped(self) -> str:
        """Its name with all scopes."""
        first = next(iter(self.variables.values()), ("", None))[0].rpartition("/")[0]
        return self.call.draws_as or first or _row(self.call.layer, layers.rows()).kind


def chain_of(functions: TracedFunctions) -> tuple[tuple[Chained, ...], ...]:
    """Return the layers of each stage; raises NotLayersError where there is more to it, or less."""
    traced = functions.traced
    if any(size > 1 for size in functions.parts):
        raise NotLayersError("stages that run at the same time are known by their cost alone")
    result: list[tuple[Chained, ...]] = []
    at: int | None = None
    for item in traced.stages:
        stage = written(item, traced.inputs)
        end = None if at is None else stage.takes[at]
        own: list[Chained] = []
        for node in stage.calls:
            layer, end = _chained(node, end, stage)
            own.append(layer)
        if not own:
            raise NotLayersError(f"stage {item.stage.name!r} runs no layer")
        result.append(tuple(own))
        if end not in stage.gives:
            raise NotLayersError(f"stage {item.stage.name!r} does not give what its last layer does")
        at = stage.gives.index(end)
    _check_variables(result)
    return tuple(result)


def in_layers(job: Job, functions: TracedFunctions) -> dict[str, Any]:
    """Return the sections of a scenario that say what is executed: data, model, optimizer and stages.

    Raises NotLayersError where layers, data or the optimizer cannot be said.
    """
    chain, program = chain_of(functions), job.program
    names = short_names_of([[layer.scoped for layer in stage] for stage in chain])
    flat = [layer for stage in chain for layer in stage]
    flat_names = [name for stage in names for name in stage]
    specs = [
        {"name": name, **_said(layer.call.layer, layers.rows())} for name, layer in zip(flat_names, flat, strict=True)
    ]
    dtypes = {variable.dtype for layer in flat for _, variable in layer.variables.values()}
    if len(dtypes) > 1:
        raise NotLayersError("variables are of several types")
    precision = np.dtype(next(iter(dtypes), np.float32)).name
    samples = program.micro_batch_size * program.shape.micro_batches * program.repeat_count * job.system.learners
    pipeline: dict[str, Any] = {"stages": _stages(functions, names), "micro_batch_size": len(flat[0].input)}
    accumulators = _accumulators(functions, flat_names, flat, precision)
    return {
        "data": _data(flat, samples),
        "model": {"layers": specs},
        "pipeline": pipeline | ({"gradient_accumulation_dtype": accumulators} if accumulators else {}),
        **({"optimizer": _optimizer(functions)} if functions.training else {}),
        **({"precision": precision} if precision != "float32" else {}),
    }


def _stages(functions: TracedFunctions, names: Sequence[Sequence[str]]) -> list[Any]:
    """Return the layers of each stage, by the names of stages where functions have said them."""
    shown = [plain_name(name, "stage") for name in functions.shown_names]
    renamed = [own != shown_name for own, shown_name in zip(functions.names, functions.shown_names, strict=True)]
    if len(set(shown)) < len(shown) or not all(renamed):
        return [list(stage) for stage in names]
    return [{"name": name, "layers": list(stage)} for name, stage in zip(shown, names, strict=True)]


def _chained(node: RecordedNode, end: RecordedNode | None, stage: WrittenStage) -> tuple[Chained, RecordedNode]:
    """Return the layer that a call runs on the ``end`` of the chain before it, None for its beginning."""
    name, call = stage.stage.stage.name, layer_of(node)
    if call is None:
        raise NotLayersError(f"stage {name!r} calls {core_functions.name_of(node.function)}, which is no layer")
    first, *rest = arrays_of(node)
    if first is None or (first not in stage.takes if end is None else first is not end):
        raise NotLayersError(f"stage {name!r} runs layers that are not one after the other")
    labels = rest.pop(0) if call.is_loss else None
    if call.is_loss and labels not in stage.takes:
        raise NotLayersError(f"stage {name!r} computes the labels of its loss")
    variables = [item.variable for item in rest if item is not None and item.variable is not None]
    if len(variables) != len(rest):
        raise NotLayersError(f"stage {name!r} computes the parameters of a layer")
    value = stage.stage.inputs
    shaped = np.zeros((call.batch, *call.shape), _dtype_of(first, stage))
    result = value[stage.takes.index(labels)] if labels is not None else None
    return Chained(call, dict(zip(call.names, variables, strict=True)), shaped, result), node


def _dtype_of(node: RecordedNode, stage: WrittenStage) -> np.dtype[Any]:
    """Return the dtype of an array that came in; of others, which are results of layers, any floating-point one."""
    return stage.stage.inputs[stage.takes.index(node)].dtype if node in stage.takes else np.dtype(np.float32)


def _check_variables(chain: Sequence[Sequence[Chained]]) -> None:
    names = [name for stage in chain for layer in stage for name, _ in layer.variables.values()]
    shared = next((name for name in names if names.count(name) > 1), None)
    if shared is not None:
        raise NotLayersError(f"variable {shared!r} is of several layers")


def _row(thing: Any, rows: Sequence[models.Row]) -> models.Row:
    """Return the row of a layer, loss or optimizer; raises NotLayersError where a scenario has none."""
    result = next((row for row in rows if row.makes is type(thing)), None)
    if result is None:
        raise NotLayersError(f"a scenario has no {type(thing).__name__}")
    return result


def _said(thing: Any, rows: Sequence[models.Row]) -> dict[str, Any]:
    """Return type and keys of a layer, loss or optimizer, those that are not their defaults."""
    row = _row(thing, rows)
    arguments = {
        key.name: getattr(thing, key.argument) for key in row.keys if getattr(thing, key.argument) != key.default
    }
    if len(row.keys) != len(fields(thing)):
        raise NotLayersError(f"a scenario cannot say all of {type(thing).__name__}")
    return {"type": row.kind, **{name: _plain(value, thing) for name, value in arguments.items()}}


def _plain(value: Any, of: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item, of) for item in value]
    if isinstance(value, float):  # of a tensor of float32 the shortest number that is it
        near = float(str(np.float32(value)))
        return near if np.float32(value) == value else value
    if isinstance(value, bool | int | str):
        return value
    raise NotLayersError(f"a scenario cannot say {value!r} of {type(of).__name__}")


def _optimizer(functions: TracedFunctions) -> dict[str, Any]:
    update = functions.traced.optimizer
    assert update is not None
    if update.gradient_map is not None:
        raise NotLayersError("the optimizer changes gradients by functions of its own")
    rule = update.optimizer.rule
    if isinstance(rule, KerasMomentum):  # a scenario's step size stays, so that it is TensorFlow 1's
        rule = learning.Momentum(**vars(rule))
    return _said(rule, learning.rows())


def _data(chain: Sequence[Chained], samples: int) -> dict[str, Any]:
    """Return data of the form of the program's."""
    first, last = chain[0], chain[-1]
    shape, labels = list(first.input.shape[1:]), last.labels
    samples = max(len(first.input), min(samples, runs.MAX_SAMPLE_ELEMENTS // max(first.input[0].size, 1)))
    if isinstance(first.call.layer, layers.TakesTokens):
        vocabulary = getattr(first.call.layer, "input_dim", None)
        if len(shape) != 1 or vocabulary is None or (labels is not None and list(labels.shape[1:]) != shape):
            raise NotLayersError("a scenario has no such tokens as the data")
        return {"type": "synthetic_tokens", "length": shape[0], "vocabulary": int(vocabulary), "samples": samples}
    if first.input.dtype.kind != "f":
        raise NotLayersError(f"a scenario has no data of {first.input.dtype}")
    result: dict[str, Any] = {"type": "synthetic", "shape": shape, "classes": 2, "samples": samples}
    if labels is None:
        return result
    if labels.dtype.kind == "f":
        targets = {"type": "synthetic_targets", "shape": shape, "target_shape": list(labels.shape[1:])}
        return targets | {"samples": samples}
    result["classes"] = int(last.call.shape[-1])
    return result | ({"label_count": labels.shape[1]} if labels.ndim == 2 else {})


def _accumulators(
    functions: TracedFunctions, names: Sequence[str], chain: Sequence[Chained], precision: str
) -> str | dict[str, str]:
    """Return the type of the accumulators, by parameter where they have several; empty for the precision."""
    stored = {
        f"{name}/{own}": functions.accumulator_dtype(variable, array).name
        for name, layer in zip(names, chain, strict=True)
        for own, (variable, array) in layer.variables.items()
    }
    kinds = set(stored.values())
    if len(kinds) > 1:
        return {name: kind for name, kind in stored.items() if kind != precision}
    return "" if kinds <= {precision} else kinds.pop()
