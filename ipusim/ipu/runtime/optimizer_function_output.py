"""What a pipeline's optimizer function returns: which optimizer, and the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipusim.base.errors import ProgramError, ProgramTypeError
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.runtime.optimizer import Optimizer, is_tensor

_NAME = "OptimizerFunctionOutput"


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
