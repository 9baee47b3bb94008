"""Keras' metrics: sums of each micro-batch on the device, and results from the sums on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import autograd.numpy as anp
import numpy as np

from ipusim.api import functions
from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.host_functions import also_on_host
from ipusim.ipu.runtime.offered import in_module, offering
from ipusim.ipu.runtime.per_example_loss import PerExampleLoss, concrete
from ipusim.ipu.tensorflow.array_functions import argmax, cast, tensor
from ipusim.ipu.tensorflow.keras import losses
from ipusim.ipu.tensorflow.keras.described import Configured
from ipusim.ipu.tensorflow.keras.layer import snake_case
from ipusim.ipu.tensorflow.keras.probabilities import Probabilities
from ipusim.ipu.tensorflow.losses import classes_of, fitted, fitted_weights, shares_of


class Metric(Configured):
    """Base of all metrics.

    A micro-batch gives :meth:`statistics` on the device, which are added up; :meth:`result_of` makes the metric's
    value of the sums.

    Attributes:
        name: under which logs have it.
        total: the sums so far.
    """

    default_name: ClassVar[str] = "metric"
    #: Whether its one statistic is the mean over a micro-batch's samples.
    sends_mean: ClassVar[bool] = False

    def __init__(self, name: str | None = None, dtype: Any = None) -> None:
        """Take a name; raises UnsupportedProgramError for a subclass with variables of its own."""
        if type(self).statistics is Metric.statistics:
            raise UnsupportedProgramError(
                f"{type(self).__name__}: expected a metric of keras.metrics or a function of labels and predictions, "
                "as no metric has variables of its own here; a subclass says statistics() and result_of()"
            )
        self.name = name or self.default_name
        self.total: list[Any] | None = None

    def get_config(self) -> dict[str, Any]:
        """Return its arguments."""
        result = {name: value for name, value in super().get_config().items() if name != "dtype" or value is not None}
        return result | ({"name": self.name} if "name" in result else {})

    def statistics(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tuple[Any, ...]:
        """Return a micro-batch's statistics, each a number."""
        raise NotImplementedError

    def result_of(self, total: Sequence[Any]) -> float:
        """Return the value for sums of statistics."""
        raise NotImplementedError

    def add(self, statistics: Sequence[Any], count: int = 1) -> None:
        """Add what ``count`` micro-batches have given."""
        result = [np.asarray(statistic, np.float64) for statistic in statistics]
        self.total = result if self.total is None else [a + b for a, b in zip(self.total, result, strict=True)]

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch of the host; raises ProgramError in a stage."""
        if functions.inside():
            raise ProgramError(f"{self.name}.update_state: expected to be called on the host, and not in a stage")
        self.add(self._of_host(y_true, y_pred, sample_weight))

    def _of_host(self, y_true: Any, y_pred: Any, sample_weight: Any) -> Sequence[Any]:
        """Return the statistics of a batch of the host, which may have another size than the one before."""
        return self.statistics(y_true, y_pred, sample_weight)

    def result(self) -> float:
        """Return the value so far, 0 before there is one."""
        return 0.0 if self.total is None else self.result_of(self.total)

    def reset_state(self) -> None:
        """Begin anew."""
        self.total = None

    reset_states = reset_state

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
        """Add a batch of the host, and return the value so far."""
        self.update_state(y_true, y_pred, sample_weight)
        return self.result()


class _Quotient(Metric):
    """A metric that is the quotient of two sums."""

    def result_of(self, total: Sequence[Any]) -> float:
        """Return the quotient, 0 of no samples."""
        return float(total[0] / total[1]) if total[1] else 0.0


class Mean(_Quotient):
    """The mean of values."""

    default_name = "mean"

    def statistics(self, y_true: Any, y_pred: Any = None, sample_weight: Any = None) -> tuple[Any, ...]:
        """Return their sum and number, each value times its weight."""
        values = tensor(y_true)
        return weighted(values, y_pred if sample_weight is None else sample_weight)

    def update_state(self, y_true: Any, y_pred: Any = None, sample_weight: Any = None) -> None:
        """Add values of the host, and their weights."""
        self.add(self.statistics(y_true, y_pred, sample_weight))

    def __call__(self, values: Any, sample_weight: Any = None) -> float:  # type: ignore[override]  # Keras' own
        """Add values of the host, and return the mean so far."""
        return super().__call__(values, None, sample_weight)


def weighted(values: Any, sample_weight: Any) -> tuple[Any, Any]:
    """Return the sum of values and their number, or of their products with weights and of the weights."""
    size = int(np.prod(anp.shape(values)))
    if sample_weight is None:
        return anp.sum(values), np.float32(size)
    weights = fitted_weights(sample_weight, values)
    return anp.sum(values * weights), anp.sum(weights)


class MeanMetricWrapper(_Quotient):
    """The mean over all samples of a function of labels and predictions.

    Of a batch without weights the mean is sent, which is one number, as all batches of a run are of one size.
    """

    sends_mean = True

    def __init__(self, fn: Callable[..., Any], name: str | None = None, dtype: Any = None, **options: Any) -> None:
        """Take the function, a name, and options of the function."""
        self._function, self._options = fn, options
        super().__init__(name or getattr(fn, "__name__", "metric"), dtype)

    def statistics(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tuple[Any, ...]:
        """Return the mean and 1; with weights both sums."""
        values = self._function(y_true, y_pred, **self._options)
        if sample_weight is None:
            return (values.mean_of_all() if isinstance(values, PerExampleLoss) else anp.mean(values),)
        return weighted(concrete(values), sample_weight)

    def _of_host(self, y_true: Any, y_pred: Any, sample_weight: Any) -> Sequence[Any]:
        return weighted(concrete(self._function(y_true, y_pred, **self._options)), sample_weight)

    def add(self, statistics: Sequence[Any], count: int = 1) -> None:
        """Add what ``count`` micro-batches have given."""
        super().add(statistics if len(statistics) == 2 else (statistics[0], float(count)), count)


@also_on_host
def sparse_categorical_accuracy(y_true: Any, y_pred: Any) -> Any:
    """Return 1 for each sample whose class number is the most likely."""
    scores = tensor(_ranked(y_pred))
    result = argmax(scores, -1)
    return cast(result == classes_of(y_true, scores), np.float32)


@also_on_host
def categorical_accuracy(y_true: Any, y_pred: Any) -> Any:
    """Return 1 for each sample whose one-hot label is at the most likely class."""
    scores = tensor(_ranked(y_pred))
    return cast(argmax(shares_of(y_true, scores), -1) == argmax(scores, -1), np.float32)


@losses.of_fitted
def binary_accuracy(y_true: Any, y_pred: Any, threshold: float = 0.5) -> Any:
    """Return the share of each sample's predictions that are on the label's side of the threshold."""
    return anp.mean(cast(y_true == cast(y_pred > threshold, y_pred.dtype), np.float32), axis=-1)


@losses.of_fitted
def accuracy(y_true: Any, y_pred: Any) -> Any:
    """Return 1 for each prediction that equals its label."""
    return cast(y_true == y_pred, np.float32)


@also_on_host
def sparse_top_k_categorical_accuracy(y_true: Any, y_pred: Any, k: int = 5) -> Any:
    """Return 1 for each sample whose class number is among the ``k`` most likely."""
    scores = tensor(_ranked(y_pred))
    labels = classes_of(y_true, scores)
    places = np.arange(anp.shape(scores)[-1])
    own = anp.sum(anp.where(labels[..., None] == places, scores, 0.0), axis=-1, keepdims=True)
    among = anp.sum(cast(scores > own, np.float32), axis=-1) < k
    return cast(anp.logical_and(among, anp.isfinite(own[..., 0])), np.float32)  # TensorFlow's kernel counts no others


@also_on_host
def top_k_categorical_accuracy(y_true: Any, y_pred: Any, k: int = 5) -> Any:
    """Return 1 for each sample whose one-hot label is among the ``k`` most likely."""
    scores = tensor(_ranked(y_pred))
    return sparse_top_k_categorical_accuracy(argmax(shares_of(y_true, scores), -1), scores, k)


def _ranked(y_pred: Any) -> Any:
    """Return the logits of the probabilities, which have the same order and need not be computed."""
    return y_pred.logits if isinstance(y_pred, Probabilities) else y_pred


class RootMeanSquaredError(_Quotient):
    """The root of the mean squared error."""

    default_name = "root_mean_squared_error"

    def statistics(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tuple[Any, ...]:
        """Return the sum of squares and the number."""
        predictions = tensor(y_pred)
        return weighted(anp.square(predictions - fitted(y_true, predictions)), sample_weight)

    def result_of(self, total: Sequence[Any]) -> float:
        """Return the root of the quotient."""
        return float(np.sqrt(super().result_of(total)))


class _Counts(_Quotient):
    """A quotient of numbers of predictions that are right and wrong, on either side of a threshold."""

    def __init__(
        self,
        thresholds: float | None = None,
        top_k: None = None,
        class_id: None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        """Take the threshold, 0.5 for none.

        Raises ProgramTypeError for several, ProgramError for a ``top_k`` and ``class_id``, which are not simulated.
        """
        for argument, value in (("top_k", top_k), ("class_id", class_id)):
            if value is not None:
                checks.wrong_value(argument, "None", value)
        if thresholds is not None and not isinstance(thresholds, int | float):
            checks.wrong_type("thresholds", "one number", thresholds)
        self._threshold = 0.5 if thresholds is None else float(thresholds)
        super().__init__(name, dtype)

    def _counted(self, y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        scores = tensor(y_pred)
        labels = fitted(y_true, scores)
        says, yes = cast(scores > self._threshold, np.float32), cast(labels != 0, np.float32)
        weights = 1.0 if sample_weight is None else fitted_weights(sample_weight, scores)
        return anp.sum(says * yes * weights), anp.sum(says * weights), anp.sum(yes * weights)


class Precision(_Counts):
    """The share of what is predicted that is right."""

    default_name = "precision"

    def statistics(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tuple[Any, ...]:
        """Return how many are predicted and right, and predicted."""
        right, predicted, _ = self._counted(y_true, y_pred, sample_weight)
        return right, predicted


class Recall(_Counts):
    """The share of what is so that is predicted."""

    default_name = "recall"

    def statistics(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tuple[Any, ...]:
        """Return how many are predicted and right, and right."""
        right, _, there = self._counted(y_true, y_pred, sample_weight)
        return right, there


class TopKCategoricalAccuracy(MeanMetricWrapper):
    """The share of samples whose one-hot label is among the ``k`` most likely classes."""

    default_name = "top_k_categorical_accuracy"
    _of_samples: ClassVar[Callable[..., Any]] = staticmethod(top_k_categorical_accuracy)

    def __init__(self, k: int = 5, name: str | None = None, dtype: Any = None) -> None:
        """Take how many; raises ProgramError and ProgramTypeError for no whole number from 1."""
        super().__init__(self._of_samples, name, dtype, k=checks.whole("k", k, 1))


class SparseTopKCategoricalAccuracy(TopKCategoricalAccuracy):
    """The share of samples whose class number is among the ``k`` most likely."""

    default_name = "sparse_top_k_categorical_accuracy"
    _of_samples = staticmethod(sparse_top_k_categorical_accuracy)


def _class(name: str, function: Callable[..., Any]) -> type[MeanMetricWrapper]:
    default = snake_case(name)

    def begin(self: MeanMetricWrapper, name: str | None = None, dtype: Any = None, **options: Any) -> None:
        MeanMetricWrapper.__init__(self, function, name or default, dtype, **options)

    body = {"__init__": begin, "default_name": default, "__doc__": f"The mean of {function.__name__}."}
    return type(name, (MeanMetricWrapper,), body)


Accuracy = _class("Accuracy", accuracy)
BinaryAccuracy = _class("BinaryAccuracy", binary_accuracy)
CategoricalAccuracy = _class("CategoricalAccuracy", categorical_accuracy)
SparseCategoricalAccuracy = _class("SparseCategoricalAccuracy", sparse_categorical_accuracy)
MeanSquaredError = _class("MeanSquaredError", losses.mean_squared_error)
MeanAbsoluteError = _class("MeanAbsoluteError", losses.mean_absolute_error)
MeanAbsolutePercentageError = _class("MeanAbsolutePercentageError", losses.mean_absolute_percentage_error)
MeanSquaredLogarithmicError = _class("MeanSquaredLogarithmicError", losses.mean_squared_logarithmic_error)
BinaryCrossentropy = _class("BinaryCrossentropy", losses.binary_crossentropy)
CategoricalCrossentropy = _class("CategoricalCrossentropy", losses.categorical_crossentropy)
SparseCategoricalCrossentropy = _class("SparseCategoricalCrossentropy", losses.sparse_categorical_crossentropy)

_BY_NAME: Final[dict[str, type[Metric]]] = {
    kind.default_name: kind
    for kind in (
        *(BinaryAccuracy, CategoricalAccuracy, SparseCategoricalAccuracy),
        *(TopKCategoricalAccuracy, SparseTopKCategoricalAccuracy),
        *(MeanSquaredError, MeanAbsoluteError, MeanAbsolutePercentageError, MeanSquaredLogarithmicError),
        *(BinaryCrossentropy, CategoricalCrossentropy, SparseCategoricalCrossentropy),
    )
}
#: Names of texts whose metric keeps the text as its name.
_SHORT: Final = {
    "mse": MeanSquaredError,
    "mae": MeanAbsoluteError,
    "mape": MeanAbsolutePercentageError,
    "msle": MeanSquaredLogarithmicError,
}


def is_known(name: str) -> bool:
    """Tell whether a metric is known by a name."""
    return name in _BY_NAME or name in _SHORT or name in ("accuracy", "acc")


def get(identifier: Any, label_shape: tuple[int, ...], shape: tuple[int, ...]) -> Metric:
    """Return a metric by its name, its class or itself; a function is that of each sample.

    What "accuracy" stands for depends on the shapes of labels and predictions, as in Keras.

    Raises ProgramError for an unknown name, ProgramTypeError for what is no metric.
    """
    if isinstance(identifier, Metric):
        return identifier
    if isinstance(identifier, type) and issubclass(identifier, Metric):
        return identifier()
    if callable(identifier):
        return MeanMetricWrapper(identifier)
    checks.instance("metrics", identifier, str, "a metric, its name, or a function of labels and predictions")
    kind: type[Any] | None = _SHORT.get(identifier)
    if identifier in ("accuracy", "acc"):
        binary, one_hot = shape[-1:] == (1,), label_shape == shape
        kind = BinaryAccuracy if binary else CategoricalAccuracy if one_hot else SparseCategoricalAccuracy
    if kind is not None:
        result: Metric = kind(identifier)
        return result
    if identifier not in _BY_NAME:
        known = ", ".join(sorted([*_BY_NAME, "accuracy", *_SHORT]))
        raise ProgramError(f"Unknown metric function: {identifier}. Expected one of {known}")
    return _BY_NAME[identifier]()


_FUNCTIONS: Final = (
    "binary_accuracy categorical_accuracy sparse_categorical_accuracy sparse_top_k_categorical_accuracy "
    "top_k_categorical_accuracy"
)
_CLASSES: Final = (
    "Accuracy BinaryAccuracy BinaryCrossentropy CategoricalAccuracy CategoricalCrossentropy Mean MeanAbsoluteError "
    "MeanAbsolutePercentageError MeanMetricWrapper MeanSquaredError MeanSquaredLogarithmicError Metric Precision "
    "Recall RootMeanSquaredError SparseCategoricalAccuracy "
    "SparseCategoricalCrossentropy SparseTopKCategoricalAccuracy TopKCategoricalAccuracy"
)
__getattr__, __dir__ = offering("tf.keras.metrics", in_module(__name__, _FUNCTIONS) | in_module(__name__, _CLASSES))
