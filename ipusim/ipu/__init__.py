"""Graphcore's API for programs on TensorFlow, on simulated IPUs.

``ipusim run program.py`` runs a program unchanged. To run ``python program.py``, add a first line

    import ipusim.ipu

above the first import of TensorFlow: imports such as ``from tensorflow.python import ipu`` then find this package's
modules. A notebook calls ``ipusim.ipu.install()``. Programs inside ``with ipusim.ipu.profile("folder") as profiled:``
write run files to the folder. After the block, ``profiled.runs`` lists the runs.

Importing this package does not import TensorFlow; the program's own import does.
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

_PACKAGE: Final = "ipusim.ipu"
_find, __dir__ = rows(
    __name__,
    in_module(f"{_PACKAGE}.imports.hook", "install") | in_module(f"{_PACKAGE}.programs.profiling", "profile"),
)


def __getattr__(name: str) -> Any:
    """Return an offered name; raises ProgramError for ``get_variable``."""
    if name == "get_variable":
        raise ProgramError(
            "ipusim.ipu.get_variable: expected a program on TensorFlow; a stage in autograd.numpy is a `python:` layer "
            "of a scenario (reports/scenario.md)"
        )
    return _find(name)


serve_program()
