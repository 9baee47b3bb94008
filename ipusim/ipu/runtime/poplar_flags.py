"""Read Graphcore's environment variable TF_POPLAR_FLAGS, and select synthetic data."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any, Final

from ipusim.base.near_names import did_you_mean
from ipusim.ipu.runtime.context import Scoped

#: Name of the environment variable.
VARIABLE: Final = "TF_POPLAR_FLAGS"
_SYNTHETIC: Final = "use_synthetic_data"
#: Reason why a Graphcore flag has no effect.
_NO_GRAPH: Final = "nothing is compiled to a graph"
_WITHOUT_EFFECT: Final = {
    "dump_schedule_as_dot": _NO_GRAPH,
    "executable_cache_path": _NO_GRAPH,
    "fallback_scheduler": _NO_GRAPH,
    "help": "Graphcore's documentation describes the flags",
    "log_cycle_count": "every run reports its cycles",
    "max_compilation_threads": _NO_GRAPH,
    "max_infeed_threads": "the host is simulated",
    "null_data_feed": "the infeed has the program's own data",
    "save_interval_report": "a profile contains the memory of IPUs over time",
    "save_vertex_graph": _NO_GRAPH,
    "show_progress_bar": _NO_GRAPH,
    "synthetic_data_categories": "either all data is synthetic or none",
    "synthetic_data_initializer": "stages compute on the program's own data, which takes no time to travel",
    "tensor_map_file_path": _NO_GRAPH,
    "use_ipu_model": "every device is simulated",
    "while_loop_brute_force_max_trip_count": "the condition of a loop is evaluated until it no longer holds",
}
_SYNTHETIC_HERE: Final = Scoped("synthetic", False)


def synthetic_data(enabled: bool) -> AbstractContextManager[Any]:
    """Use synthetic data for programs placed on IPUs in the block, if ``enabled``: no data travel from or to the host.

    Programs are placed when they run, not when they are built.
    """
    return _SYNTHETIC_HERE.set_to(enabled or _SYNTHETIC_HERE())


def uses_synthetic_data() -> bool:
    """Tell whether a block or the environment selects synthetic data."""
    return _SYNTHETIC_HERE() or any(_is_on(flag) for flag in _flags() if _name(flag) == _SYNTHETIC)


def notes() -> tuple[str, ...]:
    """Return a note with a reason per environment flag without effect."""
    return tuple(_note(name) for name in dict.fromkeys(map(_name, _flags())) if name != _SYNTHETIC)


def _note(name: str) -> str:
    if name in _WITHOUT_EFFECT:
        return f"{VARIABLE}: --{name} has no effect here: {_WITHOUT_EFFECT[name]}."
    near = did_you_mean(name, [_SYNTHETIC, *_WITHOUT_EFFECT])
    return f"{VARIABLE}: --{name} is no flag of Graphcore's TensorFlow{near}; it has no effect."


def _flags() -> list[str]:
    return [item for item in os.environ.get(VARIABLE, "").split() if item.startswith("--")]


def _name(flag: str) -> str:
    return flag.removeprefix("--").partition("=")[0]


def _is_on(flag: str) -> bool:
    """Tell whether a flag is set; flags without a value count as set, like Graphcore's."""
    return flag.partition("=")[2].lower() in ("", "true", "1")
