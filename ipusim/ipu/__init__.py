"""Pipelines written in Python, in Graphcore's own names: ``from ipusim import ipu``.

A stage is a function written with ``autograd.numpy``; it takes what the stage before
returns, and asks for its variables by name. Two stages learn to triple a number:

>>> import numpy as np
>>> from ipusim.ipu import get_variable, optimizers, pipelining_ops
>>> from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
>>> from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
>>> def scale(x):
...     return x * get_variable("w", 1.0), x
>>> def loss(y, x):
...     return (y - 3 * x) ** 2
>>> def learn(loss):
...     return pipelining_ops.OptimizerFunctionOutput(optimizers.GradientDescentOptimizer(0.05), loss)
>>> outfeed = IPUOutfeedQueue()
>>> done = pipelining_ops.pipeline(
...     [scale, loss],
...     gradient_accumulation_count=4,
...     repeat_count=20,
...     infeed_queue=IPUInfeedQueue(repeat([np.float32(1)])),
...     outfeed_queue=outfeed,
...     optimizer_function=learn,
... )
>>> (losses,) = outfeed.dequeue()
>>> losses.shape
(80,)
>>> round(float(done.variables["w"]), 3)
3.0
>>> done.summary.schedule, done.summary.time_steps
('grouped', 8)

The pipeline has run when ``pipeline`` returns; its ``run`` goes on from there. Inside ``with ipu.profile("folder"):``
it leaves the files of a run there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ipusim.ipu import config, ipu_infeed_queue, ipu_outfeed_queue, optimizers, pipelining_ops
    from ipusim.ipu.import_names import install
    from ipusim.ipu.profiling import profile
    from ipusim.model.functions.variables import get_variable

__all__ = [
    "config",
    "get_variable",
    "install",
    "ipu_infeed_queue",
    "ipu_outfeed_queue",
    "optimizers",
    "pipelining_ops",
    "profile",
]

#: Modules, each imported when it is first asked for.
_MODULES: Final = (
    "all_to_all_op",
    "autoshard",
    "config",
    "cross_replica_ops",
    "cross_replica_optimizer",
    "custom_ops",
    "data",
    "dataset",
    "dataset_benchmark",
    "distributed",
    "embedding_ops",
    "functional_ops",
    "gradient_accumulation_optimizer",
    "horovod",
    "image_ops",
    "internal_ops",
    "ipu_compiler",
    "ipu_estimator",
    "ipu_infeed_queue",
    "ipu_multi_worker_strategy",
    "ipu_outfeed_queue",
    "ipu_pipeline_estimator",
    "ipu_run_config",
    "ipu_session_run_hooks",
    "ipu_strategy",
    "keras",
    "layers",
    "loops",
    "map_gradient_optimizer",
    "math_ops",
    "nn_ops",
    "normalization_ops",
    "ops",
    "optimizers",
    "pipelining_ops",
    "rand_ops",
    "reduce_scatter_op",
    "replication_ops",
    "rnn_ops",
    "scopes",
    "sharded_optimizer",
    "sharding",
    "slicing_ops",
    "statistics_ops",
    "summary_ops",
    "tensorflow",
    "utils",
)


#: The modules of what is no module itself.
_HOMES: Final = {
    "get_variable": "ipusim.model.functions.variables",
    "install": "ipusim.ipu.import_names",
    "profile": "ipusim.ipu.profiling",
}


def __getattr__(name: str) -> Any:
    """Return a module of Graphcore's by its name, or a function of ours; raises AttributeError for another."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    """Return the modules and functions."""
    return sorted([*_HOMES, *_MODULES])
