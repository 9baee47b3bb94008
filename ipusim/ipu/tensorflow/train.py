"""``tf.train``: the optimizers of :mod:`ipusim.ipu.optimizers` that are TensorFlow's, checkpoints, and hooks."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from ipusim.ipu import optimizers
from ipusim.ipu.tensorflow.offered import lack

_NAMES: Final = (
    "AdadeltaOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "Optimizer",
    "RMSPropOptimizer",
)


_HERE: Final = "ipusim.ipu.tensorflow"
#: What is not an optimizer, with its module.
_OTHERS: Final = {
    name: f"{_HERE}.{module}"
    for module, found in {
        "variables": "create_global_step get_global_step get_or_create_global_step",
        "saver": "CheckpointState Saver checkpoint_exists get_checkpoint_state latest_checkpoint list_variables "
        "load_variable",
        "checkpoint_saver_hook": "CheckpointSaverHook",
        "session_run_hook": "CheckpointSaverListener SessionRunArgs SessionRunContext SessionRunHook SessionRunValues",
        "basic_session_run_hooks": "LoggingTensorHook NanLossDuringTrainingError NanTensorHook SecondOrStepTimer "
        "StepCounterHook StopAtStepHook",
    }.items()
    for name in found.split()
}


def __getattr__(name: str) -> Any:
    """Return what there is; raises AttributeError for anything else."""
    if name not in __dir__():
        lack("tf.train", name, __dir__())
    return getattr(import_module(_OTHERS[name]) if name in _OTHERS else optimizers, name)


def __dir__() -> list[str]:
    """Return the names of all."""
    return [*(name for name in _NAMES if hasattr(optimizers, name)), *_OTHERS]
