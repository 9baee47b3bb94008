"""Pipelines in Graphcore's names on TensorFlow, trained in a session, with what the machine did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.programs import needs_tensorflow


@dataclass
class Trained:
    """A pipeline that has run.

    Attributes:
        results: what the outfeed has, an array for each tensor.
        job, timeline: what ran on the machine.
        variables: values of TensorFlow's variables by name.
    """

    results: list[np.ndarray]
    job: Any
    timeline: Any
    variables: dict[str, np.ndarray]

    @property
    def losses(self) -> np.ndarray:
        """The losses."""
        return self.results[0]


def ipus(number: int, **options: Any) -> Any:
    """Return a device of so many IPUs."""
    from ipusim.ipu.config import IPUConfig  # noqa: PLC0415

    config = IPUConfig()
    config.auto_select_ipus = number
    for name, value in options.items():
        setattr(config, name, value)
    return config


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
) -> Trained:
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
    needs_tensorflow()
    from ipusim.ipu.graph.tensorflow_import import load  # noqa: PLC0415

    tf = load()
    from ipusim.ipu import (  # noqa: PLC0415
        ipu_compiler,
        ipu_infeed_queue,
        ipu_outfeed_queue,
        pipelining_ops,
    )
    from ipusim.ipu.traced.device_program import DeviceProgram  # noqa: PLC0415

    v1, found, run = tf.compat.v1, {}, DeviceProgram.run
    options = {"gradient_accumulation_count": 4, "repeat_count": 2, **options}

    def noted(program: Any, invocation: Any, running: Any, *rest: Any) -> Any:
        result = run(program, invocation, running, *rest)
        found["job"] = program._placements[running.session].session.job
        found["timeline"] = program.timelines[running.session]
        return result

    with tf.Graph().as_default(), ExitStack() as stack:
        v1.set_random_seed(1)
        outfeed = ipu_outfeed_queue.IPUOutfeedQueue()
        dataset = tf.data.Dataset.from_tensor_slices(tuple(data)).batch(batch, drop_remainder=True).repeat()
        infeed = ipu_infeed_queue.IPUInfeedQueue(dataset)
        written = stages(stack)

        def learn(loss: Any, *_: Any) -> Any:
            chosen = v1.train.GradientDescentOptimizer(rate) if optimizer is None else optimizer(v1)
            return pipelining_ops.OptimizerFunctionOutput(chosen, loss)

        compiled = ipu_compiler.compile(
            lambda: pipelining_ops.pipeline(
                written,
                infeed_queue=infeed,
                outfeed_queue=outfeed,
                optimizer_function=None if rate is None else learn,
                config=device or ipus(len(written)),
                **options,
            )
        )
        dequeued = outfeed.dequeue()
        DeviceProgram.run = noted  # type: ignore[method-assign]
        try:
            with v1.Session() as session:
                session.run([v1.global_variables_initializer(), infeed.initializer])
                for _ in range(runs):
                    session.run(compiled)
                results = session.run(dequeued)
                variables = {each.op.name: session.run(each) for each in v1.global_variables()}
        finally:
            DeviceProgram.run = run  # type: ignore[method-assign]
    flat = list(results) if isinstance(results, list | tuple) else [results]
    return Trained(flat, found["job"], found["timeline"], variables)


def on_ipus(build: Callable[[], Any]) -> Any:
    """Return the values of the tensors that a computation on simulated IPUs returns, in their structure."""
    needs_tensorflow()
    from ipusim.ipu.graph.tensorflow_import import load  # noqa: PLC0415

    tf = load()
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


class OnIpus:
    """A module of Graphcore's operations whose functions run on simulated IPUs, on arrays.

    Attributes:
        module: the module's name.
    """

    def __init__(self, module: str) -> None:
        """Take the name."""
        self.module = module

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a function by its name."""

        def call(*arguments: Any, **named: Any) -> Any:
            needs_tensorflow()
            from importlib import import_module  # noqa: PLC0415

            function = getattr(import_module(f"ipusim.ipu.{self.module}"), name)
            return on_ipus(lambda: function(*arguments, **named))

        return call


class Lazily:
    """A module of Graphcore's names on TensorFlow, imported when a name of it is asked for.

    Attributes:
        module: the module's name.
    """

    def __init__(self, module: str) -> None:
        """Take the name."""
        self.module = module

    def __getattr__(self, name: str) -> Any:
        """Return an object by its name."""
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module(f"ipusim.ipu.{self.module}"), name)


def profile_of(operation: Callable[..., Any], x: np.ndarray, *others: np.ndarray, trained: bool = True) -> Any:
    """Return the profile of a stage with an operation, on elements with the batch first.

    Args:
        operation: takes TensorFlow, and the tensors.
        x: array that a variable of the stage before multiplies, if it is trained.
        others: further arrays.
        trained: whether the program trains.
    """
    needs_tensorflow()
    from ipusim.ipu.graph.tensorflow_import import load  # noqa: PLC0415

    tf = load()

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
