"""Load user operations: functions from a Python file, and elementwise expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ipusim.api import Array, LayerCost, Shape, VectorWork, Work, functions, layers, models
from ipusim.base.errors import ModelError, UnsupportedProgramError
from ipusim.ipu.runtime import checks


@dataclass(frozen=True)
class UserOperation:
    """A user's functions of arrays.

    Attributes:
        name: name in messages.
        run: takes the inputs and ``attributes``; returns an array or several arrays.
        pull_back: takes the results' gradients, results, inputs and ``attributes``; returns the inputs' gradients. With
            ``separate``, takes an input's position first, and returns the gradient of this input only. None for an
            operation without a gradient.
        cycles: takes the inputs; returns the cycles of both passes, ``forward`` and ``backward``. None counts one
            operation per element written.
        outputs: dtype and shape per result.
        attributes, gradient_attributes: texts passed to the functions.
        separate: whether the gradient function is called once per input.
        positions_with_gradients: positions of inputs with gradients; None for all inputs.
    """

    name: str
    run: Callable[..., Any]
    pull_back: Callable[..., Any] | None
    cycles: Callable[..., Any] | None
    outputs: tuple[tuple[np.dtype[Any], Shape], ...]
    attributes: str = ""
    gradient_attributes: str = ""
    separate: bool = False
    positions_with_gradients: tuple[int, ...] | None = None

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], layers.Saved]:
        """Return the results; raises ModelError for unexpected results and errors of ``run``."""
        with functions.Failing(f"user operation {self.name!r}"):
            outcome = self.run(*arrays, attributes=self.attributes)
        result = tuple(map(np.asarray, checks.as_list(outcome)))
        forms = [(item.dtype, item.shape) for item in result]
        if forms != list(self.outputs):
            raise ModelError(
                f"user operation {self.name!r}: expected results {_forms_text(self.outputs)}, as in outs, "
                f"got {_forms_text(forms)}"
            )
        return result, (arrays, result)

    def backward(self, saved_values: layers.Saved, grads: Sequence[Array], argnums: Sequence[int]) -> list[Array]:
        """Return gradients from the gradient function, and zeros for inputs without gradients.

        None stands for an integer input's gradient, which is never needed. Raises ModelError without a gradient
        function, for missing or misshapen gradients, and for errors of the function.
        """
        arrays, results = saved_values
        if self.pull_back is None:
            raise ModelError(
                f"user operation {self.name!r}: no gradient goes back through it, because its file has no function "
                "for that"
            )
        positions = list(range(len(arrays)) if self.positions_with_gradients is None else self.positions_with_gradients)
        operands = list(grads), list(results), list(arrays)
        with functions.Failing(f"gradient of user operation {self.name!r}"):
            if self.separate:
                positions = [position for position in positions if position in argnums]
                values = [
                    self.pull_back(position, *operands, attributes=self.gradient_attributes) for position in positions
                ]
            else:
                outcome = self.pull_back(*operands, attributes=self.gradient_attributes)
                values = list(outcome) if isinstance(outcome, tuple | list) else [outcome]
            if len(values) != len(positions):
                raise ModelError(f"expected gradients of {len(positions)} inputs, got {len(values)}")
            result = {}
            for position, item in zip(positions, values, strict=True):
                if item is not None:
                    result[position] = np.asarray(item, arrays[position].dtype)
                elif position in argnums:
                    raise ModelError(
                        f"expected a gradient of input {position}, of shape {arrays[position].shape}, got None"
                    )
            for position, item in result.items():
                if item.shape != arrays[position].shape:
                    raise ModelError(
                        f"expected a gradient of shape {arrays[position].shape} for input {position}, got {item.shape}"
                    )
        return [result.get(position, np.zeros_like(arrays[position])) for position in argnums]

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the user's cycles, or one operation per element written by a pass."""
        itemsize = max((array.dtype.itemsize for array in arrays if array.dtype.kind == "f"), default=4)
        if self.cycles is not None:
            with functions.Failing(f"cost of user operation {self.name!r}"):
                value = self.cycles(*arrays)
                return LayerCost(
                    _measured_work(value, "forward", itemsize), _measured_work(value, "backward", itemsize)
                )
        elements = sum(math.prod(shape) for _, shape in self.outputs)
        bytes_written = sum(dtype.itemsize * math.prod(shape) for dtype, shape in self.outputs)
        bytes_read = sum(array.nbytes for array in arrays)
        gradient_elements = sum(arrays[position].size for position in argnums)
        forward = Work(vector=VectorWork(elements), sram_bytes=bytes_read + bytes_written, itemsize=itemsize)
        backward = Work(
            vector=VectorWork(gradient_elements),
            sram_bytes=bytes_read + 2 * bytes_written + sum(arrays[position].nbytes for position in argnums),
            itemsize=itemsize,
            compute_sets=len(argnums) if self.separate else 1,
        )
        return LayerCost(forward, backward)


@dataclass(frozen=True)
class Expression:
    """An elementwise function of several arrays, computed in one step; without a gradient, like Graphcore's."""

    function: Callable[..., Any]

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], layers.Saved]:
        """Return the function's value; raises ModelError for non-arrays and for errors of the function."""
        with functions.Failing("vertex_expression"):
            result = np.asarray(self.function(*arrays))
            if result.dtype.kind not in "biuf" or result.shape != np.broadcast_shapes(
                *(array.shape for array in arrays)
            ):
                raise ModelError(f"expected an array of the inputs' shape, got {result.dtype}{list(result.shape)}")
        return (result,), None

    def backward(self, saved_values: layers.Saved, grads: Sequence[Array], argnums: Sequence[int]) -> list[Array]:
        """Raise ModelError: expressions have no gradient."""
        raise ModelError(
            "codelet_expression_op: this operation cannot be used for training, because no gradient goes back through "
            "it: compute with the arrays themselves, or after tf.stop_gradient"
        )

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the work of all operations as one compute set; arrays move once."""
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        itemsize = max(array.dtype.itemsize for array in arrays)
        floats = [array.astype(np.float64) for array in arrays]
        with np.errstate(all="ignore"):
            passes, _ = functions.count_passes(self.function, floats, range(len(floats)))
        sram_bytes = sum(array.nbytes for array in arrays) + math.prod(shape) * itemsize
        work = replace(passes.work(itemsize), sram_bytes=sram_bytes, compute_sets=1)
        return LayerCost(work, Work(itemsize=itemsize))


def _forms_text(forms: Sequence[tuple[np.dtype[Any], Shape]]) -> str:
    return "[" + ", ".join(f"{dtype}{list(shape)}" for dtype, shape in forms) + "]"


def _measured_work(value: Any, pass_name: str, itemsize: int) -> Work:
    """Return a pass's work from the result of a user's function ``cycles``."""
    cycles = value.get(pass_name, 0) if isinstance(value, dict) else None
    if isinstance(cycles, bool) or not isinstance(cycles, int) or cycles < 0:
        raise ModelError(f"expected a mapping of forward and backward to whole numbers of cycles, got {value!r}")
    return models.MeasuredWork(cycles=cycles, itemsize=itemsize)


def outputs_of(outs: Any) -> tuple[Any, ...]:
    """Return dtype and shape per result; raises ProgramTypeError and ProgramError for malformed ``outs``."""
    if outs is None:
        return ()
    if not isinstance(outs, dict) or outs.keys() != {"output_types", "output_shapes"}:
        checks.wrong_type("outs", "a dictionary of output_types and output_shapes", outs)
    types, shapes = outs["output_types"], outs["output_shapes"]
    if not isinstance(types, list | tuple) or not isinstance(shapes, list | tuple) or len(types) != len(shapes):
        checks.wrong_value("outs", "as many types as shapes", outs)
    return tuple(
        (checks.dtype("output_types", kind, "biuf"), tuple(checks.whole("output_shapes", axis) for axis in shape))
        for kind, shape in zip(types, shapes, strict=True)
    )


def library_of(library: str) -> ModuleType:
    """Return the module of a Python file; raises UnsupportedProgramError for a compiled library."""
    path = Path(library)
    if path.suffix != ".py":
        raise UnsupportedProgramError(
            "library_path: expected a file of Python with the operation's functions, because compiled libraries do not "
            f"run on simulated IPUs, got {library!r}"
        )
    modification_time = path.stat().st_mtime_ns if path.exists() else 0
    return _load(library, path.absolute(), modification_time)


@lru_cache(maxsize=64)
def _load(library: str, path: Path, _modification_time: int) -> ModuleType:
    """Run a file, once for each modification; stages request the module again for every micro-batch."""
    return functions.load_file(library, path)[0]
