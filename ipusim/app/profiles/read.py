"""Files of a profiler, told apart by how they begin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ipusim.app.profiles.megatron_log import read_log
from ipusim.app.profiles.timings import Measured
from ipusim.app.profiles.torch_trace import is_trace, read_traces
from ipusim.base.errors import FileError


def read_measured(files: Sequence[Path], names: Sequence[str] = (), count: int | None = None) -> Measured:
    """Return the measurements in traces of torch's profiler, a file for each rank, or in one log of Megatron-LM.

    ``names`` are rules as :class:`~ipusim.app.profiles.names.Names` takes them, ``count`` the micro-batches of an
    iteration of a log. Raises FileError for files of another kind, OptionError for wrong rules, and OSError.
    """
    kinds = {path: is_trace(path) for path in files}
    if all(kinds.values()):
        return read_traces(files, names)
    log = next(path for path, trace in kinds.items() if not trace)
    if len(files) > 1:
        raise FileError(
            f"{log}: expected one log, or traces of torch's profiler, JSON, got it among {len(files)} files"
        )
    return read_log(log, names, count)
