"""Optimizers around others, what an optimizer function returns, and its optimizer as the machine applies it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ipusim.api import Array, VectorWork, Work, functions, layers, learning, models
from ipusim.base.errors import IpusimError, ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.distribution import UntilAverage
from ipusim.ipu.runtime.gradients import GradientsAndVariables, Pair, UnknownGradient, Variable, known, refuse_several
from ipusim.ipu.runtime.loop_body import failed
from ipusim.ipu.runtime.optimizer import Accumulation, Optimizer, is_tensor, said
from ipusim.ipu.runtime.stage_outfeeds import UpdateOutfeeds
from ipusim.ipu.runtime.symbolic_gradients import SymbolicUpdate, trying_updates

_NAME = "OptimizerFunctionOutput"


class IpuOptimizer(Optimizer, maps_gradients=False):
    """Leaves everything to another optimizer; one of your own may inherit from it and change what it needs to."""

    #: What the argument with the wrapped optimizer is called.
    _argument = "opt"

    def __init__(self, opt: Optimizer, name: str | None = None) -> None:
        """Wrap the optimizer ``opt``, whose name is the default; raises ProgramTypeError for another object."""
        checks.instance(self._argument, opt, Optimizer, "an Optimizer")
        super().__init__(opt.rule, opt.get_name() if name is None else name)
        self._opt = opt

    @property
    def gradient_maps(self) -> int:
        """The wrapped optimizer's, and this one's."""
        return super().gradient_maps + self._opt.gradient_maps

    @property
    def cross_replica(self) -> bool:
        """Whether the wrapped optimizer averages gradients over replicas."""
        return self._opt.cross_replica

    @property
    def leaves_update(self) -> bool:
        """Whether the wrapped optimizer does."""
        return self._opt.leaves_update

    @property
    def accumulation(self) -> Accumulation | None:
        """How the wrapped optimizer accumulates."""
        return self._opt.accumulation

    def get_name(self) -> str:
        """Return the name of the wrapped optimizer."""
        return self._opt.get_name()

    def compute_gradients(self, loss: Any, var_list: Sequence[Any] | None = None, **kwargs: Any) -> list[Pair]:  # type: ignore[override]
        """Return what the wrapped optimizer computes."""
        return self._opt.compute_gradients(loss, var_list=var_list, **kwargs)

    def apply_gradients(
        self, grads_and_vars: GradientsAndVariables, global_step: object = None, name: str | None = None
    ) -> Any:
        """Update the variables by the wrapped optimizer."""
        return self._opt.apply_gradients(grads_and_vars, **said(global_step=global_step, name=name))

    def get_slot(self, *args: Any, **kwargs: Any) -> Variable | None:
        """Return a slot of the wrapped optimizer."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """Return the names of the wrapped optimizer's slots.

        Arguments have no effect: ``args`` and ``kwargs`` are not handed on, as the wrapped optimizer's method takes
        none.
        """
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> list[Variable]:
        """Return the wrapped optimizer's slots."""
        return self._opt.variables()


class TapedOptimizer(IpuOptimizer, maps_gradients=False):
    """Computes gradients as a body asked for, and lets another optimizer apply them."""

    def __init__(self, opt: Optimizer, update: SymbolicUpdate) -> None:
        """Take the body's optimizer and what it was handed."""
        super().__init__(opt)
        self._update = update

    def apply_gradients(self, grads_and_vars: GradientsAndVariables, *args: Any, **kwargs: Any) -> Any:
        """Compute, and let the body's optimizer apply, with what the body has called it with."""
        return self._opt.apply_gradients(self._update.applied(grads_and_vars), *args, **kwargs)


def optimizer_of_body(opt: Optimizer, update: SymbolicUpdate | None) -> Optimizer:
    """Return the optimizer of a body that handed ``update`` to ``opt``, None where it called minimize.

    Raises UnsupportedProgramError for gradients that would have to be changed before they are accumulated.
    """
    if update is None or update.plain:
        return opt
    if opt.accumulation is not None and opt.accumulation.num_mini_batches > 1:
        raise UnsupportedProgramError(
            "grads_and_vars: expected gradients as they come where an optimizer accumulates them: change them in a "
            "MapGradientOptimizer"
        )
    return TapedOptimizer(opt, update)


class OptimizerFunctionOutput:
    """The optimizer and the loss of a training pipeline.

    Args:
        opt: an optimizer of :mod:`ipusim.ipu.optimizers`.
        loss: an array, or what a stage computes with in its place; one of several elements counts as their sum.
        compute_gradients_args, compute_gradients_kwargs: handed to the optimizer's compute_gradients, behind the loss.
        apply_gradients_args, apply_gradients_kwargs: handed to the optimizer's apply_gradients.
        variables, tape, gradient_capture_context, captured_gradient_outfeed: for Keras' optimizers
            and captured gradients, which are refused.

    Raises ProgramTypeError and ProgramError in Graphcore's words, in Graphcore's order.
    """

    def __init__(
        self,
        opt: Optimizer,
        loss: Any,
        compute_gradients_args: tuple[Any, ...] | None = None,
        compute_gradients_kwargs: dict[str, Any] | None = None,
        apply_gradients_args: tuple[Any, ...] | None = None,
        apply_gradients_kwargs: dict[str, Any] | None = None,
        variables: tuple[Any, ...] | list[Any] | None = None,
        tape: Any = None,
        gradient_capture_context: Any = None,
        captured_gradient_outfeed: Any = None,
    ) -> None:
        """Check the arguments."""
        from ipusim.ipu.runtime.per_example_loss import concrete  # noqa: PLC0415 - autograd takes a while to import

        loss = concrete(loss)
        _check(opt, Optimizer, "opt must be a TensorFlow Optimizer or Keras OptimizerV2 object.")
        if not is_tensor(loss):
            raise ProgramTypeError(f"{_NAME}.loss must be a TensorFlow Tensor object.")
        for name, value in (("compute", compute_gradients_args), ("apply", apply_gradients_args)):
            _check(() if value is None else value, tuple, f"{name}_gradients_args must be a tuple.")
            keywords = compute_gradients_kwargs if name == "compute" else apply_gradients_kwargs
            _check({} if keywords is None else keywords, dict, f"{name}_gradients_kwargs must be a dict.")
        if variables is not None:
            _check(variables, (tuple, list), "variables must be a tuple or list.")
            if variables:
                raise ProgramError(f"{_NAME}.variables may only be used with OptimizerV2.")
        if tape is not None:
            raise ProgramTypeError(f"{_NAME}.tape must be a GradientTape.")
        if gradient_capture_context is not None:
            raise ProgramTypeError(
                f"{_NAME}.gradient_capture_context must be an ipu.eager.backprop.GradientCollectionContext."
            )
        if captured_gradient_outfeed is not None:
            _check(
                captured_gradient_outfeed,
                IPUOutfeedQueue,
                "captured_gradient_outfeed must be an instance of IPUOutfeedQueue.",
            )
            raise ProgramError(
                f"{_NAME}.captured_gradient_outfeed may not be used when neither an "
                "ipu.eager.backprop.GradientCollectionContext, nor an ipu.eager.backprop.GradientCollectionTape is "
                "also used."
            )
        self.opt = opt
        self.loss = loss
        self.compute_gradients_args: tuple[Any, ...] = compute_gradients_args or ()
        self.compute_gradients_kwargs: Mapping[str, Any] = compute_gradients_kwargs or {}
        self.apply_gradients_args: tuple[Any, ...] = apply_gradients_args or ()
        self.apply_gradients_kwargs: Mapping[str, Any] = apply_gradients_kwargs or {}


def _check(value: object, kind: type | tuple[type, ...], text: str) -> None:
    if not isinstance(value, kind):
        raise ProgramTypeError(f"{_NAME}.{text}")


class _Loss:
    """The stand-in for the loss in compute_gradients, whose gradients the machine has computed."""


@dataclass(frozen=True)
class MappedByOptimizer(learning.GradientMap):
    """The gradient map of an optimizer's own compute_gradients.

    Each function that changes them costs one operation an element (assumed).

    Attributes:
        compute: from a gradient and its variable's value to what is accumulated.
        functions: how many change it.
    """

    compute: Callable[[Array, Array], Array] = lambda gradient, _: gradient
    functions: int = 0

    def __call__(self, gradient: Array, variable: Array) -> Array:
        """Return the gradient to accumulate, in the dtype of the one that came."""
        return self.compute(gradient, variable)

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return one operation for each function and element; reads gradient and variable, writes the gradient."""
        return models.MappingWork(
            vector=VectorWork(parameter_count * self.functions),
            sram_bytes=3 * parameter_count * itemsize if self.functions else 0,
            itemsize=itemsize,
            compute_sets=self.functions,
        )


@dataclass
class WeightUpdate:
    """An optimizer of this package as the core's.

    The last stage sets what it is called with anew in each micro-batch, for a learning rate that is a tensor has
    its value there: that of the last micro-batch before the update counts.

    Attributes:
        optimizer: whose compute_gradients and apply_gradients are called.
        args, kwargs: what apply_gradients is called with beside the gradients.
        compute_args, compute_kwargs: what compute_gradients is called with beside the loss.
        outfeeds: the queues that apply_gradients sends to.
    """

    optimizer: Optimizer
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    compute_args: tuple[Any, ...] = ()
    compute_kwargs: Mapping[str, Any] | None = None
    outfeeds: UpdateOutfeeds = field(default_factory=UpdateOutfeeds)
    #: The variables of all stages beside an unknown gradient, each by the identity of its array, which lives as long as
    #: this.
    _unknown: dict[int, tuple[UnknownGradient, Variable]] = field(default_factory=dict, init=False, repr=False)
    #: Names of those that compute_gradients has left out.
    _left_out: set[str] = field(default_factory=set, init=False, repr=False)

    @property
    def gradient_map(self) -> learning.GradientMap | None:
        """The gradient map of compute_gradients over each micro-batch's gradients, if there is one."""
        count = self.optimizer.gradient_maps
        if not (count or self.compute_args or self.compute_kwargs):
            return None
        return MappedByOptimizer(compute=self._computed, functions=count)

    def _computed(self, gradient: Array, array: Array) -> Array:
        """Return the gradient of one variable that compute_gradients returns.

        Raises UnsupportedProgramError where that depends on other gradients, ProgramTypeError and ProgramError for
        what is no gradient of the variable.
        """
        _, here = self._unknown[id(array)]
        # A stage that is there twice has two arrays of a name: to the program they are one variable.
        pairs: list[Pair] = [
            (gradient, here) if key == id(array) else pair
            for key, pair in self._unknown.items()
            if key == id(array) or pair[1].name != here.name
        ]
        with known.set_to(pairs), functions.Surrounded(ipu_alone="compute_gradients of an optimizer"):
            returned = self.optimizer.compute_gradients(_Loss(), *self.compute_args, **(self.compute_kwargs or {}))
        result = _of_variable(returned, here)
        if result is None:
            self._left_out.add(here.name)
            return np.zeros_like(gradient)
        return result.astype(gradient.dtype, copy=False)

    def initial_state(self, parameters: layers.Parameters) -> learning.State:
        """Return the rule's state before the first update."""
        state = self.optimizer.rule.initial_state(parameters)
        self._unknown |= {
            id(array): (UnknownGradient(array.shape, array.dtype), Variable(name, array, state))
            for name, array in parameters.items()
        }
        return state

    def find_outfeeds(self, variables: Mapping[str, Array]) -> None:
        """Find the queues that apply_gradients sends to, where it is that of an optimizer around another.

        It is called once with gradients of zeros for ``variables``, none of which changes.
        """
        if self.optimizer.leaves_update:
            pairs = [(np.zeros_like(array), Variable(name, array.copy(), {})) for name, array in variables.items()]
            with self.outfeeds.calling(running=False), trying_updates.set_to(True):
                self.optimizer.apply_gradients(pairs, *self.args, **(self.kwargs or {}))

    def apply(self, parameters: layers.Parameters, gradients: layers.Parameters, state: learning.State) -> None:
        """Update the variables of one stage by the optimizer."""
        self._apply([learning.Updated(parameters, gradients, state)])

    def begin(self, stages: Sequence[learning.Updated], replicated: bool) -> Callable[[], object]:
        """Run the optimizer up to the averaging of gradients; return the rest of the update."""
        if not any(stage.parameters for stage in stages):
            return lambda: None
        if not replicated:
            return lambda: self._apply(stages)
        call = UntilAverage(lambda: self._apply(stages))
        stored = {name: array for stage in stages for name, array in stage.gradients.items()}
        values = [pair for pair in call.start() or () if pair[0] is not None]
        for gradient, variable in values:
            stored[variable.name][...] = gradient
        return lambda: call.finish([(stored[variable.name], variable) for _, variable in values])

    def _apply(self, stages: Sequence[learning.Updated]) -> None:
        pairs = [
            (None if name in self._left_out else stage.gradients[name], Variable(name, array, stage.state))
            for stage in stages
            for name, array in stage.parameters.items()
        ]
        if not pairs:
            return
        try:
            with functions.Surrounded(ipu_alone="apply_gradients of an optimizer"), self.outfeeds.calling(running=True):
                self.optimizer.apply_gradients(pairs, *self.args, **(self.kwargs or {}))
        except (IpusimError, KeyboardInterrupt):
            raise
        except BaseException as error:  # an optimizer of the user's own may do anything
            raise failed("apply_gradients", error) from error

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the rule's work."""
        return self.optimizer.rule.work(parameter_count, itemsize)

    def state_bytes(self, parameter_count: int, itemsize: int) -> int:
        """Return the bytes of the rule's slots."""
        return self.optimizer.rule.state_bytes(parameter_count, itemsize)


def _of_variable(returned: Any, here: Variable) -> Array | None:
    """Return the gradient of one variable out of what compute_gradients has returned; None where it has none."""
    try:
        pairs = [(gradient, variable) for gradient, variable in returned]
    except (TypeError, ValueError):
        checks.wrong_type("compute_gradients", "pairs of a gradient and a Variable from it", returned)
    result = next((gradient for gradient, variable in pairs if getattr(variable, "name", None) == here.name), None)
    if result is None:
        return None
    if isinstance(result, UnknownGradient):
        refuse_several()
    array = checks.numbers("compute_gradients", result)
    if array.shape != here.shape:
        checks.wrong_value("compute_gradients", f"a gradient of shape {here.shape} for {here.name!r}", result)
    return array
