"""Pipelines in Graphcore's names on TensorFlow, trained in a session, with what the machine did."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.programs import RanProgram, configured, needs_tensorflow, pipelined, tensorflow


def ipus(number: int, **options: Any) -> Any:
    """Return a device of so many IPUs."""
    return configured(auto_select_ipus=number, **options)


def train(
    stages: Callable[[Any], Sequence[Callable[..., Any]]],
    data: Sequence[np.ndarray],
    *,
    batch: int = 4,
    device: Any = None,
    rate: float | None = 0.1,
    optimizer: Callable[[Any], Any] | None = None,
    runs: int = 1,
    **options: Any,
) -> RanProgram:
    """Trace and run a pipeline in a graph and a session of its own.

    Args:
        stages: takes a stack of blocks that are open while the session runs, returns the stages.
        data: arrays whose rows are samples.
        batch: samples of a micro-batch.
        device: configuration; by default an IPU for each stage.
        rate: learning rate of gradient descent; None for inference.
        optimizer: makes another optimizer of the module of TensorFlow 1.
        runs: runs of the session.
        options: of the pipeline.
    """
    v1 = tensorflow().compat.v1
    modules = ("ipu_compiler", "ipu_infeed_queue", "ipu_outfeed_queue", "pipelining_ops", "scopes")
    ipu = SimpleNamespace(**{name: import_module(f"ipusim.ipu.{name}") for name in modules})
    names = SimpleNamespace(tf=v1, ipu=ipu)
    count = options.pop("gradient_accumulation_count", 4)
    with v1.Graph().as_default(), ExitStack() as stack:
        v1.set_random_seed(1)
        written = stages(stack)
        dataset = v1.data.Dataset.from_tensor_slices(tuple(data)).batch(batch, drop_remainder=True).repeat()
        made = None if rate is None else (optimizer or (lambda v1: v1.train.GradientDescentOptimizer(rate)))(v1)
        options = {"repeat_count": 2, "config": device or ipus(len(written)), "optimizer": made} | options
        return pipelined(names, written, dataset, count, feeds=({},) * runs, **options)


def on_ipus(build: Callable[[], Any]) -> Any:
    """Return the values of the tensors that a computation on simulated IPUs returns, in their structure."""
    tf = tensorflow()
    from ipusim.ipu.ipu_compiler import compile  # noqa: PLC0415

    structure: list[Any] = []

    def flat() -> list[Any]:
        structure.append(build())
        return list(tf.nest.flatten(structure[0]))

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.set_random_seed(1)
        made = compile(flat)
        session.run(tf.compat.v1.global_variables_initializer())
        results = session.run(made)
        return tf.nest.pack_sequence_as(structure[0], list(results or ()))


@dataclass
class OnIpus:
    """A module of Graphcore's operations whose functions run on simulated IPUs, on arrays.

    Attributes:
        module: the module's name.
    """

    module: str

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a function by its name."""

        def call(*arguments: Any, **named: Any) -> Any:
            needs_tensorflow()
            function = getattr(import_module(f"ipusim.ipu.{self.module}"), name)
            return on_ipus(lambda: function(*arguments, **named))

        return call


@dataclass
class Lazily:
    """A module of Graphcore's names on TensorFlow, imported when a name of it is asked for.

    Attributes:
        module: the module's name.
    """

    module: str

    def __getattr__(self, name: str) -> Any:
        """Return an object by its name."""
        return getattr(import_module(f"ipusim.ipu.{self.module}"), name)


def profile_of(operation: Callable[..., Any], x: np.ndarray, *others: np.ndarray, trained: bool = True) -> Any:
    """Return the profile of a stage with an operation, on elements with the batch first.

    Args:
        operation: takes TensorFlow, and the tensors.
        x: array that a variable of the stage before multiplies, if it is trained.
        others: further arrays.
        trained: whether the program trains.
    """
    tf = tensorflow()

    def first(x: Any, *others: Any) -> Any:
        if not trained:
            return (x, *others)
        return (x * tf.compat.v1.get_variable("scale", [], x.dtype, tf.ones_initializer()), *others)

    def last(*given: Any) -> Any:
        result = operation(tf, *given)
        return tf.reduce_sum(result) if trained else result

    data = [np.repeat(each[:1], 8 * len(x), axis=0) for each in (x, *others)]
    done = train(lambda _: [first, last], data, batch=len(x), rate=0.1 if trained else None)
    return done.job.program.stages[1]
