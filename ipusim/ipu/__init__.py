"""Graphcore's API for programs on TensorFlow, on simulated IPUs.

``ipusim run program.py`` runs a program as it is. ``python program.py`` runs one with a first line

    import ipusim.ipu

above its first import of TensorFlow: imports such as ``from tensorflow.python import ipu`` then find the modules of
this package. A notebook calls ``ipusim.ipu.install()``. Inside ``with ipusim.ipu.profile("folder") as profiled:`` the
programs that run leave the files of a run. Behind the block they are the runs of ``profiled.runs``.

TensorFlow is imported when a program imports it, never before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ipusim.base.errors import ProgramError
from ipusim.ipu.imports.hook import serve_program
from ipusim.ipu.runtime.offered import in_module, rows

if TYPE_CHECKING:
    from ipusim.ipu.imports.hook import install
    from ipusim.ipu.programs.profiling import profile

__all__ = ["install", "profile"]

_HERE: Final = "ipusim.ipu"
_offered, __dir__ = rows(
    __name__,
    in_module(f"{_HERE}.imports.hook", "install") | in_module(f"{_HERE}.programs.profiling", "profile"),
)


def __getattr__(name: str) -> Any:
    """Return an offered name; raises ProgramError for the variables of stages without TensorFlow."""
    if name == "get_variable":
        raise ProgramError(
            "ipusim.ipu.get_variable: expected a program on TensorFlow; a stage in autograd.numpy is a `python:` layer "
            "of a scenario (reports/scenario.md)"
        )
    return _offered(name)


serve_program()
