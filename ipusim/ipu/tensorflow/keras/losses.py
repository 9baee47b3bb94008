"""Keras' losses: as functions, the loss of each sample; as classes, their mean over the batch.

The mean of a sparse cross entropy and of squared errors is the core's own loss, as in a scenario.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, Final

import autograd.numpy as anp
import numpy as np

from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.host_functions import also_on_host
from ipusim.ipu.runtime.offered import in_module, offering
from ipusim.ipu.runtime.per_example_loss import PerExampleLoss, concrete, squared_errors
from ipusim.ipu.tensorflow.activations import logistic
from ipusim.ipu.tensorflow.array_functions import cast, clip_by_value, maximum, minimum, reduce_mean, tensor
from ipusim.ipu.tensorflow.keras.described import Configured
from ipusim.ipu.tensorflow.keras.layer import snake_case
from ipusim.ipu.tensorflow.keras.probabilities import scores_of
from ipusim.ipu.tensorflow.losses import classes_of, fitted, fitted_weights, shares_of
from ipusim.ipu.tensorflow.nn import (
    log_softmax,
    sigmoid_cross_entropy_with_logits,
    softmax,
    sparse_softmax_cross_entropy_with_logits,
)

#: Least probability that a logarithm is taken of, as Keras' backend has it.
EPSILON: Final = 1e-7


def _clipped(y_pred: Any) -> Any:
    return clip_by_value(y_pred, EPSILON, 1 - EPSILON)


def _of_classes(y_pred: Any, from_logits: bool, axis: int) -> tuple[Any, bool]:
    """Return predictions of classes in the last axis, and whether they are logits, as those behind a softmax are."""
    if axis != -1:
        checks.wrong_value("axis", "-1", axis)
    return scores_of(y_pred, from_logits, softmax)


@also_on_host
def sparse_categorical_crossentropy(y_true: Any, y_pred: Any, from_logits: bool = False, axis: int = -1) -> Any:
    """Return -log p[y_true] of each sample, for probabilities or logits (batch, ..., classes)."""
    scores, from_logits = _of_classes(y_pred, from_logits, axis)
    labels = classes_of(y_true, scores)
    if not from_logits:
        scores = anp.log(_clipped(scores))
    return sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)


@also_on_host
def categorical_crossentropy(
    y_true: Any, y_pred: Any, from_logits: bool = False, label_smoothing: float = 0.0, axis: int = -1
) -> Any:
    """Return -sum(y_true * log p) of each sample, for probabilities or logits (batch, ..., classes)."""
    scores, from_logits = _of_classes(y_pred, from_logits, axis)
    labels = shares_of(y_true, scores)
    if label_smoothing:
        labels = labels * (1 - label_smoothing) + label_smoothing / anp.shape(scores)[-1]
    if from_logits:
        return -anp.sum(labels * log_softmax(scores), axis=-1)
    shares = scores / anp.sum(scores, axis=-1, keepdims=True)
    return -anp.sum(labels * anp.log(_clipped(shares)), axis=-1)


def of_fitted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of labels and predictions of one shape and dtype to take them as programs give them."""

    @also_on_host
    @wraps(function)
    def call(y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
        predictions = tensor(y_pred)
        return function(fitted(y_true, predictions), predictions, *args, **kwargs)

    return call


@also_on_host
def binary_crossentropy(
    y_true: Any, y_pred: Any, from_logits: bool = False, label_smoothing: float = 0.0, axis: int = -1
) -> Any:
    """Return -mean(y log p + (1 - y) log(1 - p)) of each sample, for probabilities or logits."""
    scores, from_logits = scores_of(y_pred, from_logits, logistic)
    labels = fitted(y_true, scores)
    if label_smoothing:
        labels = labels * (1 - label_smoothing) + 0.5 * label_smoothing
    if from_logits:
        return anp.mean(sigmoid_cross_entropy_with_logits(labels=labels, logits=scores), axis=axis)
    shares = _clipped(scores)
    terms = labels * anp.log(shares + EPSILON) + (1 - labels) * anp.log(1 - shares + EPSILON)
    return -anp.mean(terms, axis=axis)


@of_fitted
def mean_squared_error(y_true: Any, y_pred: Any) -> Any:
    """Return mean((y_pred - y_true)^2) of each sample."""
    errors = squared_errors(y_pred, y_true)
    if not isinstance(errors, PerExampleLoss):
        return anp.mean(errors, axis=-1)
    return PerExampleLoss(errors.shape[:-1], lambda: anp.mean(errors.array(), axis=-1), errors.mean_of_all)


@of_fitted
def mean_absolute_error(y_true: Any, y_pred: Any) -> Any:
    """Return mean(|y_pred - y_true|) of each sample."""
    return anp.mean(anp.abs(y_pred - y_true), axis=-1)


@of_fitted
def log_cosh(y_true: Any, y_pred: Any) -> Any:
    """Return mean(log(cosh(y_pred - y_true))) of each sample."""
    d = y_pred - y_true
    return anp.mean(anp.logaddexp(d, -d) - d.dtype.type(np.log(2.0)), axis=-1)


@of_fitted
def mean_absolute_percentage_error(y_true: Any, y_pred: Any) -> Any:
    """Return 100 * mean(|d / y_true|) of each sample, with d = y_pred - y_true, and at least 1e-7 below."""
    return 100 * anp.mean(anp.abs((y_true - y_pred) / maximum(anp.abs(y_true), EPSILON)), axis=-1)


@of_fitted
def mean_squared_logarithmic_error(y_true: Any, y_pred: Any) -> Any:
    """Return mean((log(1 + y_pred) - log(1 + y_true))^2) of each sample, both at least 1e-7."""
    first, second = (anp.log(maximum(item, EPSILON) + 1) for item in (y_true, y_pred))
    return anp.mean(anp.square(first - second), axis=-1)


@of_fitted
def cosine_similarity(y_true: Any, y_pred: Any, axis: int = -1) -> Any:
    """Return minus the cosine between labels and predictions of each sample."""
    return -anp.sum(_directed(y_true, axis) * _directed(y_pred, axis), axis=axis)


def _directed(x: Any, axis: int) -> Any:
    """Return vectors of length 1, as TensorFlow's l2_normalize with its least squared length."""
    return x / anp.sqrt(maximum(anp.sum(anp.square(x), axis=axis, keepdims=True), 1e-12))


@of_fitted
def huber(y_true: Any, y_pred: Any, delta: float = 1.0) -> Any:
    """Return mean(d^2 / 2 where |d| <= delta, else delta |d| - delta^2 / 2) of each sample."""
    size = anp.abs(y_pred - y_true)
    near = minimum(size, delta)
    return anp.mean(near * (size - 0.5 * near), axis=-1)


@of_fitted
def hinge(y_true: Any, y_pred: Any) -> Any:
    """Return mean(max(1 - y_true * y_pred, 0)) of each sample.

    Labels that are all 0 or 1 count as -1 and 1; any others as they are.
    """
    binary = anp.all(anp.logical_or(y_true == 0, y_true == 1))
    signs = anp.where(binary, 2 * y_true - 1, y_true)
    return anp.mean(maximum(1 - signs * y_pred, 0.0), axis=-1)


@also_on_host
def kl_divergence(y_true: Any, y_pred: Any) -> Any:
    """Return sum(y_true * log(y_true / y_pred)) of each sample."""
    predictions = clip_by_value(y_pred, EPSILON, 1.0)
    labels = clip_by_value(fitted(y_true, predictions), EPSILON, 1.0)
    return anp.sum(labels * anp.log(labels / predictions), axis=-1)


@of_fitted
def poisson(y_true: Any, y_pred: Any) -> Any:
    """Return mean(y_pred - y_true * log(y_pred)) of each sample."""
    return anp.mean(y_pred - y_true * anp.log(y_pred + EPSILON), axis=-1)


class Loss(Configured):
    """Base of the losses that are objects: ``call`` gives that of each sample.

    Args:
        reduction: "auto", "sum_over_batch_size" (the mean), "sum" or "none".
        name: of the loss.
    """

    default_name: ClassVar[str] = "loss"

    def __init__(self, reduction: str = "auto", name: str | None = None) -> None:
        """Take both; raises ProgramError for an unknown reduction."""
        result = getattr(reduction, "value", reduction)
        if result not in ("auto", "sum_over_batch_size", "sum", "none"):
            raise ProgramError(
                f"Invalid Reduction Key: {reduction}. Expected keys are "
                "\"('auto', 'none', 'sum', 'sum_over_batch_size')\""
            )
        self.reduction, self.name = result, name or self.default_name

    def get_config(self) -> dict[str, Any]:
        """Return its arguments."""
        result = super().get_config()
        return result | {name: getattr(self, name) for name in ("reduction", "name") if name in result}

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Return the loss of each sample; a subclass says what that is."""
        raise UnsupportedProgramError("Must be implemented in subclasses.")

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Return the loss, reduced; ``sample_weight`` weighs the samples, whose number a mean is over all the same."""
        item = self.call(y_true, y_pred)
        if sample_weight is not None:
            losses = concrete(item)
            item = losses * cast(fitted_weights(sample_weight, losses), losses.dtype)
        if self.reduction == "none":
            return concrete(item)
        return anp.sum(concrete(item)) if self.reduction == "sum" else reduce_mean(item)


class FunctionLoss(Loss):
    """A loss whose samples a function has: of labels and predictions."""

    function: ClassVar[Callable[..., Any]]

    def __init__(self, reduction: str = "auto", name: str | None = None, **options: Any) -> None:
        """Take the reduction, a name, and the function's own options."""
        super().__init__(reduction, name)
        self._options = options

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Return what the function gives."""
        return type(self).function(y_true, y_pred, **self._options)


class SparseCategoricalCrossentropy(FunctionLoss):
    """The mean cross entropy of class numbers."""

    default_name = "sparse_categorical_crossentropy"
    function = staticmethod(sparse_categorical_crossentropy)

    def __init__(self, from_logits: bool = False, reduction: str = "auto", name: str | None = None) -> None:
        """Say whether predictions are logits."""
        super().__init__(reduction, name, from_logits=checks.truth("from_logits", from_logits))


class _Smoothing(FunctionLoss):
    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str = "auto",
        name: str | None = None,
    ) -> None:
        """Say whether predictions are logits, and how much of a label goes to all classes."""
        if not 0 <= label_smoothing <= 1:
            checks.wrong_value("label_smoothing", "a share from 0 to 1", label_smoothing)
        options = {"from_logits": checks.truth("from_logits", from_logits), "label_smoothing": label_smoothing}
        super().__init__(reduction, name, axis=axis, **options)


class CategoricalCrossentropy(_Smoothing):
    """The mean cross entropy of one-hot labels."""

    default_name = "categorical_crossentropy"
    function = staticmethod(categorical_crossentropy)


class BinaryCrossentropy(_Smoothing):
    """The mean cross entropy of labels from 0 to 1."""

    default_name = "binary_crossentropy"
    function = staticmethod(binary_crossentropy)


class Huber(FunctionLoss):
    """Squared errors up to ``delta``, absolute ones beyond."""

    default_name = "huber_loss"
    function = staticmethod(huber)

    def __init__(self, delta: float = 1.0, reduction: str = "auto", name: str | None = None) -> None:
        """Take where errors begin to count as such."""
        super().__init__(reduction, name, delta=delta)


def _class(name: str, function: Callable[..., Any]) -> type[FunctionLoss]:
    own = snake_case(name)
    return type(
        name,
        (FunctionLoss,),
        {"function": staticmethod(function), "default_name": own, "__doc__": f"The mean of {own}."},
    )


MeanSquaredError = _class("MeanSquaredError", mean_squared_error)
MeanAbsoluteError = _class("MeanAbsoluteError", mean_absolute_error)
MeanAbsolutePercentageError = _class("MeanAbsolutePercentageError", mean_absolute_percentage_error)
MeanSquaredLogarithmicError = _class("MeanSquaredLogarithmicError", mean_squared_logarithmic_error)
CosineSimilarity = _class("CosineSimilarity", cosine_similarity)
LogCosh = _class("LogCosh", log_cosh)
Hinge = _class("Hinge", hinge)
KLDivergence = _class("KLDivergence", kl_divergence)
Poisson = _class("Poisson", poisson)

#: Losses by the names that texts have for them.
_BY_NAME: Final[dict[str, type[Loss]]] = {
    "sparse_categorical_crossentropy": SparseCategoricalCrossentropy,
    "categorical_crossentropy": CategoricalCrossentropy,
    "binary_crossentropy": BinaryCrossentropy,
    **dict.fromkeys(("mse", "MSE", "mean_squared_error"), MeanSquaredError),
    **dict.fromkeys(("mae", "MAE", "mean_absolute_error"), MeanAbsoluteError),
    **dict.fromkeys(("mape", "MAPE", "mean_absolute_percentage_error"), MeanAbsolutePercentageError),
    **dict.fromkeys(("msle", "MSLE", "mean_squared_logarithmic_error"), MeanSquaredLogarithmicError),
    "cosine_similarity": CosineSimilarity,
    **dict.fromkeys(("huber", "huber_loss"), Huber),
    **dict.fromkeys(("log_cosh", "logcosh"), LogCosh),
    "hinge": Hinge,
    **dict.fromkeys(("kld", "KLD", "kl_divergence", "kullback_leibler_divergence"), KLDivergence),
    "poisson": Poisson,
}


def is_known(name: str) -> bool:
    """Tell whether a loss is known by a name."""
    return name in _BY_NAME


def loss_of(identifier: Any) -> Loss:
    """Return a loss by its name, its class or itself; a function of labels and predictions is one of each sample.

    Raises ProgramError for an unknown name, ProgramTypeError for what is no loss.
    """
    if isinstance(identifier, Loss):
        return identifier
    name = getattr(identifier, "__name__", identifier)
    if isinstance(identifier, type) and issubclass(identifier, Loss):
        return identifier()
    if callable(identifier):
        own = {"function": staticmethod(identifier), "default_name": str(name)}
        result: Loss = type("CustomLoss", (FunctionLoss,), own)()
        return result
    checks.instance("loss", identifier, str, "a loss, its name, or a function of labels and predictions")
    if identifier not in _BY_NAME:
        raise ProgramError(f"Unknown loss function: {identifier}. Expected one of {', '.join(sorted(_BY_NAME))}")
    return _BY_NAME[identifier]()


def get(identifier: Any) -> Any:
    """Return the function of a loss by its name, and a loss as it is; raises as :func:`loss_of` does."""
    result = loss_of(identifier)
    return type(result).function if isinstance(identifier, str) and isinstance(result, FunctionLoss) else identifier


_FUNCTIONS: Final = (
    "binary_crossentropy categorical_crossentropy cosine_similarity hinge huber kl_divergence log_cosh "
    "mean_absolute_error mean_absolute_percentage_error mean_squared_error mean_squared_logarithmic_error poisson "
    "sparse_categorical_crossentropy get"
)
_CLASSES: Final = (
    "BinaryCrossentropy CategoricalCrossentropy CosineSimilarity Hinge Huber KLDivergence LogCosh Loss "
    "MeanAbsoluteError MeanAbsolutePercentageError MeanSquaredError MeanSquaredLogarithmicError Poisson "
    "SparseCategoricalCrossentropy"
)
__getattr__, __dir__ = offering(
    "tf.keras.losses",
    in_module(__name__, _FUNCTIONS)
    | in_module(__name__, _CLASSES)
    | {"mse": f"{__name__}:mean_squared_error", "mae": f"{__name__}:mean_absolute_error"},
)
