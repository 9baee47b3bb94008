"""Run functions called in a strategy's scope on simulated IPUs: Graphcore's strategy for TensorFlow 2."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, Self

from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.keras.placement import models_on_ipus
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.call_checks import check_call, check_takes
from ipusim.ipu.runtime.context import replaced
from ipusim.ipu.runtime.devices import all_on_device, ipu_ordinal
from ipusim.ipu.runtime.program_request import options_of_loop
from ipusim.ipu.traced.functions import run_function

tf = load()
#: Class of the functions that ``tf.function`` returns.
_FUNCTION_CLASS: Final = import_module("tensorflow.python.eager.polymorphic_function.polymorphic_function").Function
#: Packages whose functions run on the host, even in a strategy's scope.
_HOST_PACKAGES: Final = ("tensorflow.", "tf_keras.", "keras.")


class IPUStrategyV1:
    """Runs functions on simulated IPUs."""

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        """Check the arguments.

        Args:
            ipu_device: device for programs and queues of the scope.
            add_ipu_cross_replica_reductions: without effect.
            enable_dataset_iterators: without effect.
            enable_keras_extensions: without effect.

        Raises:
            ProgramError: if the device does not exist.
            ProgramTypeError: if an argument has a wrong type.
        """
        self._ordinal = ipu_ordinal("ipu_device", ipu_device)
        checks.truth("add_ipu_cross_replica_reductions", add_ipu_cross_replica_reductions)
        checks.truth("enable_dataset_iterators", enable_dataset_iterators)
        checks.truth("enable_keras_extensions", enable_keras_extensions)

    @contextmanager
    def scope(self) -> Iterator[Self]:
        """Run Keras models and functions of ``tf.function`` on simulated IPUs in the block."""
        with all_on_device(self._ordinal), models_on_ipus(), _functions_on_ipus(self._ordinal):
            yield self

    def run(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Run a function on the device.

        Args:
            fn: function of tensors, plain or from ``tf.function``.
            args, kwargs: arguments of the function.

        Raises:
            ProgramTypeError: if fn is not a function or does not take the arguments.
        """
        keywords = check_call("fn", fn, args, kwargs)
        if not isinstance(fn, _FUNCTION_CLASS):
            check_takes("fn", fn, args, keywords)
        with all_on_device(self._ordinal):
            if not tf.executing_eagerly():  # a session runs the compiled operation
                return _converted(fn)(*args, **keywords)
            return run_function(fn, args, keywords, options_of_loop(self._ordinal))

    #: Name of ``run`` in TensorFlow 2.1.
    experimental_run_v2 = run


IPUStrategy = IPUStrategyV1


def _converted(function: Any) -> Any:
    """Return a function, converted by AutoGraph under a converted caller, like TensorFlow's ``run``."""
    autograph = tf.__internal__.autograph
    return autograph.tf_convert(function, autograph.control_status_ctx(), convert_by_default=False)


@contextmanager
def _functions_on_ipus(ordinal: int) -> Iterator[None]:
    """Run the program's calls of ``tf.function`` on simulated IPUs, in the block."""
    original_call = _FUNCTION_CLASS.__call__

    def on_ipus(function: Any, *args: Any, **kwargs: Any) -> Any:
        if not tf.executing_eagerly() or function.python_function.__module__.startswith(_HOST_PACKAGES):
            return original_call(function, *args, **kwargs)
        return run_function(function, args, kwargs, options_of_loop(ordinal))

    with replaced(_FUNCTION_CLASS, __call__=on_ipus):
        yield
