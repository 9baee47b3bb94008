"""Models of tf_keras, as tests run them on simulated IPUs and by tf_keras alone."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ipusim.ipu.config import IPUConfig


class LateKeras:
    """tf_keras with Graphcore's names, which are imported when a test first uses them."""

    def __getattr__(self, name: str) -> Any:
        from ipusim.ipu.graph.tensorflow_import import load  # noqa: PLC0415
        from ipusim.ipu.keras.placement import install  # noqa: PLC0415

        install()
        return import_module("ipusim.ipu.keras") if name == "ipu" else getattr(load().keras, name)


def in_strategy(ipus: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function in a strategy's scope on a device of so many IPUs, which leaves nothing behind."""

    def configured() -> Any:
        from ipusim.ipu.ipu_strategy import IPUStrategy  # noqa: PLC0415

        config = IPUConfig()
        config.machine, config.auto_select_ipus = "m2000", ipus
        config.configure_ipu_system()
        with IPUStrategy().scope():
            return function(*arguments)

    return contextvars.copy_context().run(configured)


@dataclass(eq=False)
class Placed:
    """A placement of a model.

    Attributes:
        stages: stage of each call of the model; None for a model that is not pipelined.
        accumulation: number of batches of a weight update.
        schedule: the pipeline's schedule.
        synthetic: whether the host feeds nothing.
    """

    stages: Sequence[int] | None = None
    accumulation: int = 1
    reduction: Any = "SUM"
    version: int = 0
    schedule: str = "grouped"
    sums_results: bool = False
    synthetic: bool = False
    tells_steps: bool = False
    replicas: int = 1
    buffer_depth: int = 3

    @property
    def stage_of(self) -> Any:
        return None if self.stages is None else lambda nodes: self.stages

    def accumulator_dtype(self, variable: Any) -> None:
        return None

    def check(self, batch: Any, kind: str, steps: int) -> None:
        pass

    def options(self, stages: int, count: int, repeats: int, *, kind: str) -> dict[str, Any]:
        pipeline = {"schedule": "single" if self.stages is None else self.schedule, "reduction_method": self.reduction}
        counts = {"gradient_accumulation_count": count, "repeat_count": repeats}
        ipus = 1 << (stages - 1).bit_length()
        system = {"name": "m2000", "auto_select_ipus": ipus}
        mapping = {"device_mapping": list(range(stages))}
        fed = {"use_synthetic_data": True} if self.synthetic else {}
        return {"system": system, "pipeline": {**pipeline, **counts, **mapping}, **fed}


def keras() -> Any:
    """tf_keras, with the functions of placed models installed."""
    from ipusim.ipu.graph.tensorflow_import import load  # noqa: PLC0415

    tf = load()
    from ipusim.ipu.traced.keras.execution import install  # noqa: PLC0415

    install()
    return tf.keras


def build(make: Callable[[Any], Any], placed: Placed | None = None) -> Any:
    """A model with initial values that depend on nothing else, on simulated IPUs if it is placed."""
    from ipusim.ipu.traced.keras.execution import place  # noqa: PLC0415

    own = keras()
    own.backend.clear_session()
    own.utils.set_random_seed(1)
    model = make(own)
    if placed is not None:
        place(model, placed)
    return model
