"""The body of a loop, cut where its computations change from one IPU to another.

It runs once on boxes that write down each call of a function, with the shard in which it was. A stage then does its
calls again, on the values of each micro-batch: those of earlier stages come to it, those that later ones need leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from autograd.core import VJPNode
from autograd.numpy.numpy_boxes import ArrayBox
from autograd.tracer import Node, isbox, new_box, notrace_primitives, register_notrace, trace_stack

from ipusim.api import Array, functions
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.runtime.building import shard
from ipusim.ipu.runtime.loop_body import BodyRecord, as_numbers
from ipusim.ipu.runtime.names import ProgramNames
from ipusim.ipu.runtime.small_integers import SmallIntegers, as_tensorflow_divides
from ipusim.ipu.runtime.stage_call import Inputs
from ipusim.ipu.runtime.structures import leaves, mapped

ArrayBox.register(SmallIntegers)


class RecordedNode(Node):  # type: ignore[misc]
    """A call that is written down, an element of the infeed, or a variable."""

    __slots__ = (
        "arguments",
        "calls",
        "function",
        "keywords",
        "number",
        "parents",
        "places",
        "scope",
        "shard",
        "untrained",
        "variable",
    )

    def __init__(self, value: Any, fun: Any, args: Any, kwargs: Any, argnums: Any, parents: Any) -> None:
        """Write a call down; autograd makes one node for each."""
        self.function, self.arguments, self.keywords, self.places, self.parents = fun, args, kwargs, argnums, parents
        self.variable: tuple[str, Array] | None = None
        self.calls = parents[0].calls
        self.scope = functions.surroundings().scope
        here = shard()
        self.shard = max((parent.shard for parent in parents), default=0) if here is None else here
        self.number = len(self.calls)
        self.calls.append(self)

    def initialize_root(
        self, calls: list[RecordedNode], variable: tuple[str, Array] | None = None, untrained: bool = False
    ) -> None:
        """Begin with an array of the infeed, or a variable, which may be one that no optimizer trains."""
        self.untrained = untrained
        self.calls, self.variable, self.parents, self.shard, self.number = calls, variable, (), 0, -1


def boxing(calls: list[RecordedNode], trace: int) -> functions.Lookup:
    """Return a look-up of trained variables while ``calls`` are recorded: a box of each initial value."""
    boxes: dict[str, Any] = {}

    def lookup(name: str, initial: Array) -> Any:
        if name not in boxes:
            own = np.array(initial)
            boxes[name] = new_box(own, trace, RecordedNode.new_root(calls, (name, own)))
        return boxes[name]

    return lookup


def refuse_written(name: str, arrays: Sequence[Any], remedy: str) -> None:
    """Refuse arrays of a body that is written down, whose values are others in each iteration.

    Raises UnsupportedProgramError in the ``name`` of the function that needs their values, with what to write instead.
    """
    if any(isbox(array) and isinstance(array._node, RecordedNode) for array in arrays):
        raise UnsupportedProgramError(f"{name}: not simulated in a loop over several shards: {remedy}")


#: Functions of the form alone, whose results are not written down but used as they are.
for _function in tuple(notrace_primitives[VJPNode]):
    if getattr(_function, "__name__", "") in ("shape", "ndim", "size", "result_type", "iscomplexobj"):
        register_notrace(RecordedNode, _function)


@dataclass(frozen=True)
class _Stage:
    """The calls of one stage, and the nodes whose values come and leave."""

    shard: int
    calls: Sequence[RecordedNode]
    takes: Sequence[RecordedNode]
    gives: Sequence[RecordedNode]


class Shards:
    """A loop's body as stages.

    Attributes:
        mapping: the shard of each.
        record: the record of the body when it was written down.
        loss: the loss of the micro-batch that the last stage has run.
    """

    def __init__(self, body: Callable[..., BodyRecord], inputs: Inputs, element: Sequence[Array]) -> None:
        """Write the body down on an element of the infeed; its loop-carried tensors are constants of a run."""
        self._body, self._inputs, self._element = body, inputs, tuple(element)
        self._written: tuple[Array, ...] | None = None
        self.loss: Any = None
        self._names = ProgramNames()
        self.record = BodyRecord()
        self._stages: list[_Stage] = []
        self._write()
        self.mapping = tuple(stage.shard for stage in self._stages)

    def stages(self) -> list[Callable[..., Any]]:
        """Return the function of each stage, from the arrays that it receives to those that it sends."""
        return [partial(self._run, number) for number in range(len(self._stages))]

    def forget(self) -> None:
        """Write the body down anew in the next micro-batch."""
        self._written = None

    def _write(self) -> None:
        """Write the body down, if it has not been with the values that its loop-carried tensors have now."""
        values = self._inputs.values
        if self._written is not None and all(np.array_equal(a, b) for a, b in zip(values, self._written, strict=True)):
            return
        calls: list[RecordedNode] = []
        value = as_numbers(values)
        with functions.refusing_plain_numpy(), trace_stack.new_trace() as trace, np.errstate(all="ignore"):
            element = as_tensorflow_divides(self._element)
            boxes = [new_box(array, trace, RecordedNode.new_root(calls)) for array in element]
            untrained = _Written(
                lambda *variable: new_box(variable[1], trace, RecordedNode.new_root(calls, variable, True))
            )
            replica = functions.Replica(known=False)
            around = functions.Surrounded(lookup=boxing(calls, trace), untrained=untrained, replica=replica)
            with around, self._names.stage(0):
                record = self._body(*value, *boxes)
        for new, old in zip(record.carried, value, strict=True):
            if new is not old:
                raise UnsupportedProgramError(
                    "body: a sharded loop whose loop-carried tensors change is not simulated: return them as they came"
                )
        self.record, self._written = record, values
        self._roots = [box._node for box in boxes]
        ends = leaves([record.enqueued, getattr(record.train, "loss", None)])
        self._stages = _cut(calls, self._roots, [end._node for end in ends if isbox(end)])

    def _run(self, number: int, /, *arguments: Any, **named: Any) -> Any:
        """Run a stage on the arrays that it receives; those of an element that is a dictionary come by name."""
        arguments = arrays = (*arguments, *named.values())
        if number == 0:  # what the first stage is given begins with the loop-carried tensors
            self._write()
            arrays = arguments[len(self._inputs.values) :]
        stage = self._stages[number]
        values = dict(zip(stage.takes, arrays, strict=True))
        for call in stage.calls:
            values[call] = _repeat_call(call, values)
        if number < len(self._stages) - 1:
            return tuple(values[node] for node in stage.gives)

        def value(box: Any) -> Any:
            return _value(box._node, values) if isbox(box) else box

        self.loss = mapped(value, getattr(self.record.train, "loss", None))
        return mapped(value, self.record.enqueued)


class _Written(functions.Untrained):
    """Untrained variables while a body is traced: a read returns a box, and each change is recorded as a call."""

    def __init__(self, boxed: Callable[[str, Array], Any]) -> None:
        super().__init__({}, takes_new=True)
        self._boxed = boxed
        self._boxes: dict[str, Any] = {}

    def read(self, name: str, initial: Array) -> Any:
        if name not in self._boxes:
            self._boxes[name] = self._boxed(name, super().read(name, initial))
        return self._boxes[name]

    def write(self, name: str, value: Any) -> None:
        if not isbox(value):
            raise UnsupportedProgramError(
                f"variable {name!r}: a sharded loop that sets it to a value which depends on nothing is not simulated"
            )
        self._boxes[name] = _set(name, self._boxes[name], value)


@functions.unseen
def _set(name: str, before: Any, value: Any) -> Any:
    """Set an untrained variable in a stage, where it has been read before, and return its value."""
    now = functions.surroundings().untrained
    if now is not None and not isinstance(now, _Written):
        now.write(name, value)
    return value


def _repeat_call(call: RecordedNode, values: dict[RecordedNode, Any]) -> Any:
    """Repeat a call on the values that its arguments have now; what a layer saves is its own."""
    arguments = [copy(argument) if isinstance(argument, functions.Call) else argument for argument in call.arguments]
    for argument, parent in zip(call.places, call.parents, strict=True):
        arguments[argument] = _value(parent, values)
    if call.scope is None:
        return call.function(*arguments, **call.keywords)
    with functions.Surrounded(scope=call.scope):
        return call.function(*arguments, **call.keywords)


def _value(node: RecordedNode, values: dict[RecordedNode, Any]) -> Any:
    if node not in values and node.variable is not None:
        now = functions.surroundings().untrained
        values[node] = (
            now.read(*node.variable) if node.untrained and now is not None else functions.get_variable(*node.variable)
        )
    return values[node]


def _cut(calls: Sequence[RecordedNode], roots: Sequence[RecordedNode], ends: Sequence[RecordedNode]) -> list[_Stage]:
    """Return the stages: calls in a row on one shard; each takes from the one before what it or a later one needs.

    A variable of several shards is on the first one, from where its value goes to the others.
    """
    runs = [(index, list(result)) for index, result in groupby(calls, key=lambda call: call.shard)] or [(0, [])]
    read = [[parent for call in result for parent in call.parents] for _, result in runs]
    read[-1] += ends
    first: dict[RecordedNode, int] = {}
    for number, nodes in enumerate(read):
        for node in nodes:
            first.setdefault(node, number)

    def comes(node: RecordedNode, number: int) -> bool:
        """Tell whether the stage at ``number`` gets a node's value from another one, where it does not compute it."""
        return node.variable is None or runs[first[node]][0] != runs[number][0]

    needed: list[set[RecordedNode]] = [set()]
    for number, (_, result) in reversed(list(enumerate(runs))):
        own = {node for node in read[number] if comes(node, number)}
        begun = {node for node, at in first.items() if at == number and node.variable is not None}
        needed.insert(0, (needed[0] | own) - set(result) - begun)
    order = {node: number for number, node in enumerate([*roots, *calls, *first])}
    passed = [sorted(item, key=order.__getitem__) for item in needed]
    passed[0] = list(roots)
    return [_Stage(index, result, passed[number], passed[number + 1]) for number, (index, result) in enumerate(runs)]
