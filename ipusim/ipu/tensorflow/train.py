"""TensorFlow's own optimizers (``tf.train``) and LAMB: the core's rules under their names and arguments.

A number may be a tensor of one, such as a learning rate on its way from ``inputs``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ipusim.api import learning
from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.host import captured
from ipusim.ipu.runtime.offered import in_module, offering
from ipusim.ipu.runtime.optimizer import Optimizer

#: A number, or a tensor of one.
Scalar = Any


def _number(name: str, value: Scalar) -> float:
    """Return the number that the argument ``name`` is, or the value of a tensor of one.

    Raises ProgramTypeError for what is no number, ProgramError for several.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    from autograd.tracer import getval  # noqa: PLC0415 - autograd takes a while to import

    result = getval(captured(value))
    if not isinstance(result, np.ndarray | np.generic) or result.dtype.kind not in "iuf":
        checks.wrong_type(name, "a number, or a tensor of one number", result)
    if result.ndim:
        checks.wrong_value(name, f"a number, or a tensor of one number and not of shape {result.shape}", result)
    return float(result)


def _numbers(use_locking: bool = False, **values: Scalar) -> list[Any]:
    """Return the numbers that arguments are, in their order; ``use_locking`` is without effect.

    Raises as :func:`_number` does, and ProgramTypeError where ``use_locking`` is no truth value.
    """
    checks.truth("use_locking", use_locking)
    return [_number(name, value) for name, value in values.items()]


class GradientDescentOptimizer(Optimizer):
    """TensorFlow's gradient descent: variable -= learning_rate * gradient."""

    def __init__(self, learning_rate: Scalar, use_locking: bool = False, name: str = "GradientDescent") -> None:
        """Take the step size, a number or a tensor of one.

        Raises ModelError for one below 0, ProgramTypeError and ProgramError for what is no single number.
        """
        super().__init__(learning.SGD(*_numbers(use_locking, learning_rate=learning_rate)), name)


class MomentumOptimizer(Optimizer):
    """TensorFlow 1's momentum: a = momentum * a + gradient; variable -= learning_rate * a; or Nesterov's."""

    def __init__(
        self,
        learning_rate: Scalar,
        momentum: Scalar,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        """Take the step size, the decay of a, and whether it is Nesterov's; raises as gradient descent does."""
        rate, decay = _numbers(use_locking, learning_rate=learning_rate, momentum=momentum)
        super().__init__(learning.Momentum(rate, decay, checks.truth("use_nesterov", use_nesterov)), name)


class AdamOptimizer(Optimizer):
    """TensorFlow's Adam."""

    def __init__(
        self,
        learning_rate: Scalar = 0.001,
        beta1: Scalar = 0.9,
        beta2: Scalar = 0.999,
        epsilon: Scalar = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        """Take the step size, the decays of both moments, and what is added to the root.

        Raises ModelError for values out of range, ProgramTypeError and ProgramError for what is no single number.
        """
        numbers = _numbers(use_locking, learning_rate=learning_rate, beta1=beta1, beta2=beta2, epsilon=epsilon)
        super().__init__(learning.Adam(*numbers), name)


class RMSPropOptimizer(Optimizer):
    """TensorFlow 1's RMSProp."""

    def __init__(
        self,
        learning_rate: Scalar,
        decay: Scalar = 0.9,
        momentum: Scalar = 0.0,
        epsilon: Scalar = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        """Take the step size, the decays of the mean square and of the steps, and what is added under the root.

        Raises ModelError for values out of range, ProgramTypeError and ProgramError for what is no single number.
        """
        rate, mean, steps, added = _numbers(
            use_locking, learning_rate=learning_rate, decay=decay, momentum=momentum, epsilon=epsilon
        )
        super().__init__(learning.RMSProp(rate, mean, steps, added, checks.truth("centered", centered)), name)


class AdagradOptimizer(Optimizer):
    """TensorFlow 1's Adagrad."""

    def __init__(
        self,
        learning_rate: Scalar,
        initial_accumulator_value: Scalar = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:
        """Take the step size, and what the sums of squares begin with.

        Raises ModelError for a step size below 0, ProgramError for a first sum that is not above 0, and as gradient
        descent does.
        """
        checks.truth("use_locking", use_locking)
        first = _number("initial_accumulator_value", initial_accumulator_value)
        if first <= 0:
            raise ProgramError(f"initial_accumulator_value must be positive: {initial_accumulator_value}")
        super().__init__(learning.Adagrad(_number("learning_rate", learning_rate), first), name)


class AdadeltaOptimizer(Optimizer):
    """TensorFlow 1's Adadelta."""

    def __init__(
        self,
        learning_rate: Scalar = 0.001,
        rho: Scalar = 0.95,
        epsilon: Scalar = 1e-8,
        use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:
        """Take the step size, the decay of the means, and what is added under the roots.

        Raises ModelError for values out of range, ProgramTypeError and ProgramError for what is no single number.
        """
        numbers = _numbers(use_locking, learning_rate=learning_rate, rho=rho, epsilon=epsilon)
        super().__init__(learning.Adadelta(*numbers), name)


class FtrlOptimizer(Optimizer):
    """TensorFlow 1's FTRL."""

    def __init__(
        self,
        learning_rate: Scalar,
        learning_rate_power: Scalar = -0.5,
        initial_accumulator_value: Scalar = 0.1,
        l1_regularization_strength: Scalar = 0.0,
        l2_regularization_strength: Scalar = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: Scalar = 0.0,
        beta: Scalar | None = None,
    ) -> None:
        """Take the step size, its power of the sums of squares, what these begin with, and the penalties.

        ``accum_name`` and ``linear_name`` have no effect. Raises ModelError for values out of range, ProgramTypeError
        and ProgramError for what is no single number.
        """
        numbers = _numbers(
            use_locking,
            learning_rate=learning_rate,
            learning_rate_power=learning_rate_power,
            initial_accumulator_value=initial_accumulator_value,
            l1_regularization_strength=l1_regularization_strength,
            l2_regularization_strength=l2_regularization_strength,
            l2_shrinkage_regularization_strength=l2_shrinkage_regularization_strength,
            beta=0.0 if beta is None else beta,
        )
        super().__init__(learning.Ftrl(*numbers), name)


class LAMBOptimizer(Optimizer):
    """LAMB, with the arguments of Graphcore's addons."""

    def __init__(
        self,
        learning_rate: Scalar,
        weight_decay_rate: Scalar = 0.0,
        beta_1: Scalar = 0.9,
        beta_2: Scalar = 0.999,
        epsilon: Scalar = 1e-6,
        exclude_from_weight_decay: Sequence[str] | None = None,
        name: str = "LAMBOptimizer",
    ) -> None:
        """Take the step size, the decays of weights and of both moments, and parts of the names that do not decay.

        Raises ModelError for values out of range, ProgramTypeError and ProgramError for what is of another type.
        """
        parts = () if exclude_from_weight_decay is None else exclude_from_weight_decay
        if not isinstance(parts, list | tuple) or not all(isinstance(part, str) and part for part in parts):
            checks.wrong_type("exclude_from_weight_decay", "a list of parts of names", parts)
        rate, mean, squares, added, decay = _numbers(
            learning_rate=learning_rate,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            weight_decay_rate=weight_decay_rate,
        )
        super().__init__(learning.LAMB(rate, mean, squares, added, decay, tuple(parts)), name)


_HERE: Final = "ipusim.ipu.tensorflow"
__getattr__, __dir__ = offering(
    "tf.train",
    in_module(
        __name__,
        "AdadeltaOptimizer AdagradOptimizer AdamOptimizer FtrlOptimizer GradientDescentOptimizer MomentumOptimizer "
        "RMSPropOptimizer",
    )
    | in_module("ipusim.ipu.runtime.optimizer", "Optimizer")
    | in_module(f"{_HERE}.variables", "create_global_step get_global_step get_or_create_global_step")
    | in_module(
        f"{_HERE}.saver",
        "CheckpointState Saver checkpoint_exists get_checkpoint_state latest_checkpoint list_variables load_variable",
    )
    | in_module(f"{_HERE}.checkpoint_saver_hook", "CheckpointSaverHook")
    | in_module(
        f"{_HERE}.session_run_hooks",
        "CheckpointSaverListener LoggingTensorHook NanLossDuringTrainingError NanTensorHook SecondOrStepTimer "
        "SessionRunArgs SessionRunContext SessionRunHook SessionRunValues StepCounterHook StopAtStepHook",
    ),
)
