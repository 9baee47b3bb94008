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

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Final

from ipusim.ipu.imports.hook import serve_program
from ipusim.ipu.runtime.offered import in_module, rows

if TYPE_CHECKING:
    from ipusim.api import functions
    from ipusim.ipu.imports.hook import install
    from ipusim.ipu.programs.profiling import profile

    get_variable = functions.get_variable

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

_HERE: Final = "ipusim.ipu"
_TENSORFLOW: Final = f"{_HERE}.tensorflow"
#: Modules of this name, each imported when it is first asked for.
MODULES: Final = (
    "all_to_all_op autoshard config cross_replica_ops custom_ops dataset_benchmark distributed embedding_ops "
    "functional_ops horovod image_ops internal_ops ipu_compiler ipu_estimator ipu_infeed_queue "
    "ipu_multi_worker_strategy ipu_outfeed_queue ipu_pipeline_estimator ipu_run_config ipu_session_run_hooks "
    "ipu_strategy keras loops math_ops nn_ops normalization_ops ops optimizers pipelining_ops rand_ops "
    "reduce_scatter_op replication_ops rnn_ops scopes sharding slicing_ops statistics_ops summary_ops tensorflow utils"
)
#: Modules of Graphcore's that have the names of one of its optimizers, too.
_OPTIMIZERS: Final = "cross_replica_optimizer gradient_accumulation_optimizer map_gradient_optimizer sharded_optimizer"
_DATASETS: Final = in_module(f"{_TENSORFLOW}.buffer_dataset", "BufferDataset")

__getattr__, __dir__ = rows(
    __name__,
    {name: f"{_HERE}.{name}" for name in MODULES.split()}
    | {name: f"{_HERE}.optimizers.{name}" for name in _OPTIMIZERS.split()}
    | {"gradient_accumulation": in_module(f"{_HERE}.runtime.pipeline_options", "GradientAccumulationReductionMethod")}
    | {"dataset": f"{_TENSORFLOW}.dataset", "layers": f"{_HERE}.runtime.layers"}
    | {"data": in_module(f"{_TENSORFLOW}.dataset", "Dataset") | {"ops": {"dataset_ops": _DATASETS}}}
    | in_module(f"{_HERE}.imports.hook", "install")
    | in_module(f"{_HERE}.programs.profiling", "profile")
    | {"get_variable": "ipusim.api:functions.get_variable"},
)


class _Rows:
    """Lets imports find the modules below this one that are rows, such as ``keras.optimizers.schedules``."""

    @staticmethod
    def find_spec(fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not fullname.startswith(f"{_HERE}."):
            return None
        from ipusim.ipu.runtime.import_names import spec_below  # noqa: PLC0415 - a module of its own is found before

        return spec_below(fullname)


sys.meta_path.append(_Rows)

serve_program()
