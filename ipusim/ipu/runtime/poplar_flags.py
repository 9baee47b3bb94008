"""Read Graphcore's environment variable TF_POPLAR_FLAGS, and select synthetic data."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any, Final

from ipusim.base.near_names import did_you_mean
from ipusim.ipu.runtime.context import Scoped

#: Name of the environment variable.
VARIABLE: Final = "TF_POPLAR_FLAGS"
#: Flag that selects synthetic data.
_SYNTHETIC_FLAG: Final = "use_synthetic_data"
#: Reason common to flags of Graphcore's compiler.
_NO_GRAPH: Final = "nothing is compiled to a graph"
#: Reason why a flag has no effect, by flag.
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
#: Whether a block selects synthetic data.
_synthetic_in_block: Final = Scoped("synthetic", False)


def synthetic_data(enabled: bool) -> AbstractContextManager[Any]:
    """Use synthetic data, if ``enabled``, for programs that begin to run in the block.

    Host and IPUs then exchange no data."""
    return _synthetic_in_block.set_to(enabled or _synthetic_in_block())


def uses_synthetic_data() -> bool:
    """Tell whether a block or the environment selects synthetic data."""
    return _synthetic_in_block() or any(_is_on(flag) for flag in _flags() if _name(flag) == _SYNTHETIC_FLAG)


def notes() -> tuple[str, ...]:
    """Return a note with a reason per environment flag without effect."""
    return tuple(_note(name) for name in dict.fromkeys(map(_name, _flags())) if name != _SYNTHETIC_FLAG)


def _note(name: str) -> str:
    if name in _WITHOUT_EFFECT:
        return f"{VARIABLE}: --{name} has no effect here: {_WITHOUT_EFFECT[name]}."
    suggestion = did_you_mean(name, [_SYNTHETIC_FLAG, *_WITHOUT_EFFECT])
    return f"{VARIABLE}: --{name} is no flag of Graphcore's TensorFlow{suggestion}; it has no effect."


def _flags() -> list[str]:
    return [item for item in os.environ.get(VARIABLE, "").split() if item.startswith("--")]


def _name(flag: str) -> str:
    return flag.removeprefix("--").partition("=")[0]


def _is_on(flag: str) -> bool:
    """Tell whether a flag is set; flags without a value count as set, like Graphcore's."""
    return flag.partition("=")[2].lower() in ("", "true", "1")
