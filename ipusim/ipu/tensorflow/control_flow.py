"""``tf.cond`` and ``tf.while_loop``: what runs, and how often, is told by the values of a micro-batch.

Each micro-batch takes the branch, and makes the iterations, that its own values ask for. Time is that of the first
micro-batch, as of all that a stage computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from autograd.tracer import getval

from ipusim.api import functions
from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.building import is_late
from ipusim.ipu.runtime.host import Computed, Fetch, Operation, Placeholder, Running, Tensor, example
from ipusim.ipu.runtime.import_names import major_version
from ipusim.ipu.runtime.loop_body import body_record
from ipusim.ipu.runtime.names import Counts, counts, unique
from ipusim.ipu.runtime.shards import refuse_written
from ipusim.ipu.runtime.structures import leaves, mapped
from ipusim.ipu.runtime.variable import plain
from ipusim.ipu.tensorflow.array_functions import tensor

#: Iterations of a loop after which it is taken for one that never ends.
_LIMIT: Final = 1_000_000


def cond(
    pred: Any = None,
    true_fn: Any = None,
    false_fn: Any = None,
    strict: bool = False,
    name: str | None = None,
    fn1: Any = None,
    fn2: Any = None,
) -> Any:
    """Return what ``true_fn`` gives where ``pred`` holds, else what ``false_fn`` gives; gradients go through that.

    Both are called where a stage is tried, so that its variables are known. What they give may be operations too, of
    which a session does that of the branch that is taken. Raises ProgramTypeError for what is no
    function or no truth value, ProgramError for branches that give tensors of different forms.
    """
    branches = [true_fn or fn1, false_fn or fn2]
    for argument, branch in zip(("true_fn", "false_fn"), branches, strict=True):
        checks.function(argument, branch, "a function without arguments")
    pred = plain(pred)
    if isinstance(pred, Tensor) and not functions.inside():
        whole = [_tensors(branch()) for branch in branches]
        _check_alike(*whole)
        other = iter(list(leaves(whole[1])))
        return mapped(lambda value: _of_branch(pred, value, next(other)), whole[0])
    holds, named, key = _truth("pred", pred), counts(), unique("cond")
    if _is_tried():
        return _of_both(branches, holds, named, key)
    ends = named.parts.get(key, ())
    if ends and not holds:
        named.go_on_from(ends[0])
    result = _tensors(branches[not holds]())
    if ends:
        named.go_on_from(ends[1])
    return result


def _of_both(branches: Sequence[Callable[[], Any]], holds: bool, named: Counts, key: str) -> Any:
    """Call both branches, the first one first, as names are made in a graph; return what the one gives that is taken.

    What is not taken changes nothing but names. Raises ProgramError for results of different forms.
    """
    result, ends = [], []
    for taken_if, branch in enumerate(branches):
        result.append(_left_alone(branch) if holds == bool(taken_if) else _tensors(branch()))
        ends.append(named.copy())
    named.parts[key] = tuple(ends)
    _check_alike(*result)
    return result[not holds]


def while_loop(
    cond: Any,
    body: Any,
    loop_vars: Any,
    shape_invariants: object = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
    maximum_iterations: Any = None,
    return_same_structure: bool | None = None,
) -> Any:
    """Return ``loop_vars`` after repeated calls of ``body``, as long as ``cond`` of them is true.

    ``loop_vars`` are a list or tuple, or one structure for one argument. A list of one tensor is returned as one where
    ``return_same_structure``, by default in TensorFlow 2, and else as the tensor. The other arguments but
    maximum_iterations are without effect.

    Raises ProgramError for a body that gives tensors of another form, and for a loop without an end; ProgramTypeError
    for what is no function, and as :func:`cond`.
    """
    for argument, function in (("cond", cond), ("body", body)):
        checks.function(argument, function, "a function of the loop's variables")
    alone = not isinstance(loop_vars, list | tuple)
    values = _tensors([loop_vars] if alone else loop_vars)
    most = (
        None if maximum_iterations is None else checks.whole("maximum_iterations", np.asarray(maximum_iterations)[()])
    )
    waits = not functions.inside() and any(isinstance(item, Tensor) for item in (*leaves(values), cond(*values)))
    values = _Loop(cond, body, values, most).results() if waits else _looped(cond, body, values, most)
    same = major_version() > 1 if return_same_structure is None else return_same_structure
    tensors = list(leaves(values))
    return values[0] if alone else tensors[0] if len(tensors) == 1 and not same else values


def _looped(cond: Callable[..., Any], body: Callable[..., Any], values: Any, most: int | None) -> Any:
    """Return the values after the last iteration; what the body names has the same name in each."""
    count, named, key = 0, counts(), unique("while")
    begin = named.copy()
    while count != most and _truth("cond", cond(*values)):
        named.go_on_from(begin)
        values, count = _next(body, values), count + 1
        _check_ends(count, most)
    if not _is_tried():
        if key in named.parts:
            named.go_on_from(named.parts[key][0])
        return values
    if not count:
        _left_alone(partial(_next, body, values))
    named.parts[key] = (named.copy(),)
    return values


def _next(body: Callable[..., Any], values: Any) -> Any:
    """Return the values that the body makes of others; raises ProgramError for those of another form."""
    returned = body(*values)
    several = isinstance(returned, list | tuple) and len(values) == len(returned)
    after = _tensors(list(returned) if several else [returned])
    _check_as_before(values, after)
    return type(values)(*after) if hasattr(values, "_fields") else type(values)(after)


def _check_ends(count: int, most: int | None) -> None:
    if most is None and count == _LIMIT:
        raise ProgramError(f"cond: expected a loop that ends, got one of {count} iterations: give maximum_iterations")


def _of_branch(pred: Tensor, one: Any, other: Any) -> Fetch:
    """Return the tensor or operation of the branch that is taken."""
    if not isinstance(one, Operation):
        return _OfBranch("cond", _chosen, (pred, one, other))
    late = any(map(is_late, (pred, one, other)))
    return Operation("cond", lambda running: running.value(_chosen(running.value(pred), one, other)), late)


class _OfBranch(Computed):
    """A tensor of the branch that is taken, of which alone is done what it asks for, as assignments."""

    def evaluate(self, running: Running) -> Any:
        pred, one, other = self.arguments
        return np.asarray(running.value(_chosen(running.value(pred), one, other)), self.dtype)


class _Loop(Fetch):
    """A loop of the host whose number of iterations each run of a session decides."""

    def __init__(self, cond: Callable[..., Any], body: Callable[..., Any], values: Any, most: int | None) -> None:
        self._first, self._most = values, most
        value = mapped(lambda item: Placeholder("loop_vars", np.asarray(example(item))), values)
        self._arguments = list(leaves(value))
        self._goes_on, self._after = cond(*value), list(leaves(_next(body, value)))

    def results(self) -> Any:
        """Return tensors of its last values."""
        indices = iter(range(len(self._arguments)))
        return mapped(lambda _: _Last(self, index := next(indices), self._arguments[index].example), self._first)

    def evaluate(self, running: Running) -> list[Any]:
        values, count = list(leaves(running.values(self._first))), 0
        while count != self._most:
            inner = Running(running.feeds | dict(zip(self._arguments, values, strict=True)))
            if not _truth("cond", inner.value(self._goes_on)):
                break
            values, count = inner.values(self._after), count + 1
            _check_ends(count, self._most)
        return values


class _Last(Tensor):
    """One of the tensors that a loop gives."""

    def __init__(self, loop: _Loop, index: int, form: Any) -> None:
        super().__init__(form)
        self._loop, self._index = loop, index

    def evaluate(self, running: Running) -> Any:
        return np.asarray(running.value(self._loop)[self._index], self.dtype)


def _is_tried() -> bool:
    """Tell whether a stage or a body is tried, to see what it asks for."""
    now = functions.surroundings().untrained
    return now is not None and now.takes_new


def _left_alone(branch: Callable[[], Any]) -> Any:
    """Return what a branch gives that is not taken: what it asks for is noted, and what it changes is put back.

    Raises ProgramError for a branch that trains or sends results.
    """
    now, record = functions.surroundings().untrained, body_record()
    assert now is not None
    values, queue, train = dict(now.values), getattr(record, "queue", None), getattr(record, "train", None)
    result = _tensors(branch())
    if record is not None and (record.queue is not queue or record.train is not train):
        raise ProgramError("cond: expected branches that neither train nor send results: do that behind the cond")
    now.values.update(values)
    return result


def _tensors(structure: Any) -> Any:
    return mapped(lambda item: item if isinstance(item, Operation) else tensor(item), structure)


def _chosen(pred: Any, one: Any, other: Any) -> Any:
    return one if _truth("pred", pred) else other


def _truth(argument: str, value: Any) -> bool:
    traced = tensor(value)
    refuse_written(argument, [traced], "take elements of both results with tf.where")
    result = np.asarray(getval(traced))
    if result.size != 1:
        checks.wrong_type(argument, "one truth value", result)
    return bool(result)


def _forms(structure: Any) -> list[tuple[Any, Any]]:
    """Return shape and dtype of each tensor; an operation has no shape."""
    return [
        (None, "an operation") if isinstance(leaf, Operation) else (leaf.shape, leaf.dtype)
        for leaf in leaves(structure)
    ]


def _check_alike(one: Any, other: Any) -> None:
    if _forms(one) != _forms(other):
        raise ProgramError(
            f"true_fn and false_fn: expected tensors of the same shapes and dtypes, got {_text(one)} and {_text(other)}"
        )


def _check_as_before(before: Any, after: Any) -> None:
    if _forms(before) != _forms(after):
        raise ProgramError(
            f"body: expected loop variables of the shapes and dtypes that it takes, {_text(before)}, got {_text(after)}"
        )


def _text(structure: Any) -> str:
    forms = (f"{dtype}{'' if shape is None else list(shape)}" for shape, dtype in _forms(structure))
    return ", ".join(forms) or "none"
