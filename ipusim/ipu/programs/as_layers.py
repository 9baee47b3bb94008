"""Write a program's layers, data and optimizer as sections of a scenario."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np

from ipusim.api import Job, layers, learning, models, runs
from ipusim.ipu.graph.averaging import Averaged
from ipusim.ipu.graph.executable import Executable, Invocation
from ipusim.ipu.graph.node import Node, Output, Variable
from ipusim.ipu.graph.prices.rules import rule_of
from ipusim.ipu.graph.registry import value_of
from ipusim.ipu.graph.traced_functions import StepFunctions
from ipusim.ipu.programs.chain import Chained, NotLayersError, chain_of
from ipusim.ipu.programs.layer_names import plain_name, short_names_of

#: Parts of the program that a scenario of layers omits.
NOT_SAID: Final = (
    "Not carried over from the program: its data, replaced by synthetic data of the same form; the initial values of",
    "its variables; and changes from run to run, such as of a learning rate, which has its last value here.",
)
#: Input indices of an optimizer's numbers, by type of the operation that updates a variable.
_INPUTS_OF_NUMBERS: Final[dict[str, dict[str, int]]] = {
    "ResourceApplyGradientDescent": {"learning_rate": 1},
    "ResourceApplyMomentum": {"learning_rate": 2, "momentum": 4},
    "ResourceApplyKerasMomentum": {"learning_rate": 2, "momentum": 4},
    "ResourceApplyAdam": {"learning_rate": 5, "beta_1": 6, "beta_2": 7, "epsilon": 8},
    "ResourceApplyRMSProp": {"learning_rate": 3, "decay": 4, "momentum": 5, "epsilon": 6},
    "ResourceApplyCenteredRMSProp": {"learning_rate": 4, "decay": 5, "momentum": 6, "epsilon": 7},
    "ResourceApplyAdagrad": {"learning_rate": 2},
    "ResourceApplyAdagradV2": {"learning_rate": 2, "epsilon": 3},
    "ResourceApplyAdadelta": {"learning_rate": 3, "rho": 4, "epsilon": 5},
}


def in_layers(job: Job, functions: StepFunctions) -> dict[str, Any]:
    """Return a scenario's sections data, model, pipeline and optimizer, and its precision.

    Raises NotLayersError if a scenario cannot express layers, data or the optimizer.
    """
    chain, program = chain_of(functions), job.program
    names = short_names_of([[layer.scoped for layer in stage] for stage in chain])
    all_layers = [layer for stage in chain for layer in stage]
    flat_names = [name for stage in names for name in stage]
    name_of = dict(zip(all_layers, flat_names, strict=True))
    specs = [
        {"name": name, **_spec_of(_layer_with_source(chained, name_of), layers.rows())}
        for chained, name in name_of.items()
    ]
    dtypes = {functions.variables[name].dtype for layer in all_layers for name in layer.variables}
    if len(dtypes) > 1:
        raise NotLayersError("variables are of several types")
    precision = np.dtype(next(iter(dtypes), np.float32)).name
    samples = program.micro_batch_size * program.shape.micro_batches * program.repeat_count * job.system.learners
    pipeline: dict[str, Any] = {"stages": _stages(functions, names), "micro_batch_size": all_layers[0].input.shape[0]}
    accumulators = _accumulators(functions, flat_names, all_layers, precision)
    return {
        "data": _data(all_layers, samples),
        "model": {"layers": specs},
        "pipeline": pipeline | ({"gradient_accumulation_dtype": accumulators} if accumulators else {}),
        **({"optimizer": _optimizer(functions)} if functions.training else {}),
        **({"precision": precision} if precision != "float32" else {}),
    }


def _layer_with_source(chained: Chained, names: Mapping[Chained, str]) -> Any:
    """Return a layer or loss; a sum refers to the earlier layer by name."""
    source = chained.skipped_from
    return chained.layer if source is None else layers.Add(layers.EarlierLayer(names[source]))


def _stages(functions: StepFunctions, names: Sequence[Sequence[str]]) -> list[Any]:
    """Return the layers of the stages, with stage names if functions named all stages."""
    stage_names = [plain_name(name, "stage") for name in functions.shown_names]
    are_named = [
        full_name != shown_name for full_name, shown_name in zip(functions.names, functions.shown_names, strict=True)
    ]
    if len(set(stage_names)) < len(stage_names) or not all(are_named):
        return [list(stage) for stage in names]
    return [{"name": name, "layers": list(stage)} for name, stage in zip(stage_names, names, strict=True)]


def _row_of(instance: Any, rows: Sequence[models.Row]) -> models.Row:
    """Return the row with the scenario keys of a layer, loss or optimizer; raises NotLayersError without a row."""
    result = next((row for row in rows if row.kind_class is type(instance)), None)
    if result is None:
        raise NotLayersError(f"a scenario has no {type(instance).__name__}")
    return result


def _spec_of(instance: Any, rows: Sequence[models.Row]) -> dict[str, Any]:
    """Return type and non-default keys of a layer, loss or optimizer."""
    row = _row_of(instance, rows)
    arguments = {
        key.name: getattr(instance, key.argument) for key in row.keys if getattr(instance, key.argument) != key.default
    }
    if len(row.keys) != len([field for field in fields(instance) if field.init]):
        raise NotLayersError(f"a scenario cannot say all of {type(instance).__name__}")
    return {"type": row.kind, **{name: _plain_value(value, instance) for name, value in arguments.items()}}


def _plain_value(value: Any, instance: Any) -> Any:
    """Return an option in a scenario's form; raises NotLayersError for other types."""
    if isinstance(value, tuple):
        return [_plain_value(item, instance) for item in value]
    if isinstance(value, float):  # the shortest decimal of a float32 number
        decimal = float(str(np.float32(value)))
        return decimal if np.float32(value) == value else value
    if isinstance(value, bool | int | str):
        return value
    raise NotLayersError(f"a scenario cannot say {value!r} of {type(instance).__name__}")


def _optimizer(functions: StepFunctions) -> dict[str, Any]:
    """Return the optimizer with its current numbers.

    Raises NotLayersError if scenarios lack the optimizer, or the optimizer transforms gradients before applying them.
    """
    step = functions.step
    if step.rule is not None:
        return _spec_of(step.rule, learning.rows())
    nodes = {name: step.graph.nodes[name] for name in step.update_nodes}
    applied = [node for node in nodes.values() if rule_of(node) is not None]
    if len({node.type for node in applied}) != 1:
        raise NotLayersError("a scenario has no optimizer like the program's")
    if {_gradient(nodes, node) for node in applied} != set(step.accumulators.values()):
        raise NotLayersError("the optimizer changes gradients by functions of its own")
    rule, input_indices = rule_of(applied[0]), _INPUTS_OF_NUMBERS[applied[0].type]
    values = _values(functions, [applied[0].inputs[index] for index in input_indices.values()])
    return _spec_of(type(rule)(**{**vars(rule), **dict(zip(input_indices, values, strict=True))}), learning.rows())


def _gradient(nodes: Mapping[str, Node], node: Node) -> Output:
    """Return the gradient tensor of an update operation, before the average over replicas."""
    tensor = node.inputs[3 if "Momentum" in node.type else -1]
    while (maker := nodes.get(tensor.node)) is not None and (
        maker.type in ("Identity", "IdentityN") or value_of(maker, Averaged) is not None
    ):
        tensor = maker.inputs[tensor.number]
    return tensor


def _values(functions: StepFunctions, tensors: Sequence[Output]) -> list[float]:
    """Return the current values of an update's number tensors, such as the learning rate."""
    step = functions.step
    part = {*step.update_nodes, *step.trace.owners}
    values = Executable(step.graph, [], tensors, part=part)
    variables = {name: Variable(name, np.array(value)) for name, value in functions.variables.items()}
    outer = [functions.constants[tensor] for tensor in values.external]
    return [float(value) for value in values.run(Invocation(variables), outer)]


def _data(chain: Sequence[Chained], samples: int) -> dict[str, Any]:
    """Return synthetic data of the same form as the program's data."""
    first, last = chain[0], chain[-1]
    shape, labels = list(first.input.shape[1:]), last.labels
    samples = max(first.input.shape[0], min(samples, runs.MAX_SAMPLE_ELEMENTS // max(math.prod(shape), 1)))
    if isinstance(first.layer, layers.TakesTokens):
        vocabulary = getattr(first.layer, "input_dim", None)
        if len(shape) != 1 or vocabulary is None or (labels is not None and list(labels.shape[1:]) != shape):
            raise NotLayersError("a scenario has no tokens like the program's data")
        return {"type": "synthetic_tokens", "length": shape[0], "vocabulary": int(vocabulary), "samples": samples}
    if first.input.dtype.kind != "f":
        raise NotLayersError(f"a scenario has no data of {first.input.dtype}")
    result: dict[str, Any] = {"type": "synthetic", "shape": shape, "classes": 2, "samples": samples}
    if labels is None:
        return result
    if labels.dtype.kind == "f":
        targets = {"type": "synthetic_targets", "shape": shape, "target_shape": list(labels.shape[1:])}
        return targets | {"samples": samples}
    result["classes"] = int(last.input.shape[-1])
    return result | ({"label_count": labels.shape[1]} if len(labels.shape) == 2 else {})


def _accumulators(
    functions: StepFunctions, names: Sequence[str], chain: Sequence[Chained], precision: str
) -> str | dict[str, str]:
    """Return the accumulators' dtype, or dtypes by parameter if they differ; empty if all equal ``precision``."""
    dtype_of_parameter = {
        f"{name}/{variable.rpartition('/')[2]}": functions.accumulators.get(
            variable, functions.variables[variable].dtype
        ).name
        for name, layer in zip(names, chain, strict=True)
        for variable in layer.variables
    }
    kinds = set(dtype_of_parameter.values())
    if len(kinds) > 1:
        return {name: kind for name, kind in dtype_of_parameter.items() if kind != precision}
    return "" if kinds <= {precision} else kinds.pop()
