"""``tf.GradientTape`` in the body of a loop: which gradients an iteration wants of its loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ipusim.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu import checks
from ipusim.ipu.each_loss import concrete
from ipusim.ipu.loop_body import Asked, asking
from ipusim.ipu.optimizers.asked_gradients import gradient_of
from ipusim.ipu.optimizers.optimizer import is_tensor


class GradientTape:
    """Gives gradients of a loss, which the program's backward pass computes, for an optimizer to apply.

    A body is traced as a whole, so that what is watched, and whether the tape is ``persistent``, has no effect.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        """Check the arguments."""
        checks.truth("persistent", persistent)
        checks.truth("watch_accessed_variables", watch_accessed_variables)

    def __enter__(self) -> GradientTape:
        """Begin; raises UnsupportedProgramError outside of a body, where nothing is differentiated."""
        _body()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""

    def watch(self, tensor: Any) -> None:
        """Check that variables are watched; raises UnsupportedProgramError for anything else."""
        asked = _body()
        for each in tensor if isinstance(tensor, list | tuple) else [tensor]:
            if asked.name_of(each) is None:
                raise UnsupportedProgramError(
                    f"tensor: expected variables to watch, as gradients of inputs are not simulated, got {each!r}"
                )

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: object = None,
        unconnected_gradients: object = None,
    ) -> Any:
        """Return the gradient of ``target`` for each of ``sources``, in a structure like theirs.

        A target of several elements counts as their sum. A variable that the body has not asked for has None. Raises
        ProgramTypeError for what is no loss or no variable, UnsupportedProgramError outside of a body.
        """
        asked, loss = _body(), concrete(target)
        if not is_tensor(loss):
            checks.wrong_type("target", "a tensor, the loss", target)
        if output_gradients is not None:
            checks.wrong_value("output_gradients", "None, as the gradient of a loss by itself is one", output_gradients)
        return _gradients(asked, loss, sources)


def _gradients(asked: Asked, loss: Any, sources: Any) -> Any:
    if isinstance(sources, Mapping):
        return {name: _gradients(asked, loss, each) for name, each in sources.items()}
    name = asked.name_of(sources)
    if name is None and isinstance(sources, Iterable) and not (isinstance(sources, str | bytes) or is_tensor(sources)):
        return [_gradients(asked, loss, each) for each in sources]
    if name is None:
        raise ProgramTypeError(
            f"sources: expected variables, as gradients of other tensors are not simulated, got {sources!r}"
        )
    value = dict(asked.variables.values()).get(name)
    return None if value is None else gradient_of(loss, name, value)


def _body() -> Asked:
    asked = asking()
    if asked is None:
        raise ProgramError(
            "GradientTape: expected the body of a loop on the device, as in `for _ in tf.range(n)` in a function that "
            "a strategy runs"
        )
    return asked
