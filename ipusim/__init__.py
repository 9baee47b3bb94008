"""ipusim: a discrete-event simulator of pipeline execution on Graphcore IPUs.

What ``import ipusim`` offers needs no other module of the package: a
:class:`Request` of options by a scenario's own keys (:func:`request`), a
:class:`Run` of it (:func:`run`), a :class:`Comparison` of schedules on it
(:func:`compare`), a :class:`Sweep` of other values for its options
(:func:`sweep`), a :class:`Suggestion` of the best plan for it
(:func:`suggest`), a :class:`RunFolder` of what a run has written (:func:`load`), and a
page of such folders (:func:`report`).
Each is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ipusim.base.version import __version__

if TYPE_CHECKING:
    from ipusim.app.notebook.asked import request
    from ipusim.app.notebook.comparison import Comparison, compare
    from ipusim.app.notebook.folder import RunFolder, load
    from ipusim.app.notebook.pages import report
    from ipusim.app.notebook.run import Run, run
    from ipusim.app.notebook.suggestion import Suggestion, suggest
    from ipusim.app.notebook.sweep import Sweep, sweep
    from ipusim.base.errors import IpusimError
    from ipusim.runs.problems import RequestError
    from ipusim.runs.request.request import Request

__all__ = [
    "Comparison",
    "IpusimError",
    "Request",
    "RequestError",
    "Run",
    "RunFolder",
    "Suggestion",
    "Sweep",
    "__version__",
    "compare",
    "load",
    "report",
    "request",
    "run",
    "suggest",
    "sweep",
]

#: The module of each public name.
_HOMES: Final = {
    "Comparison": "ipusim.app.notebook.comparison",
    "IpusimError": "ipusim.base.errors",
    "Request": "ipusim.runs.request.request",
    "RequestError": "ipusim.runs.problems",
    "Run": "ipusim.app.notebook.run",
    "RunFolder": "ipusim.app.notebook.folder",
    "Suggestion": "ipusim.app.notebook.suggestion",
    "Sweep": "ipusim.app.notebook.sweep",
    "compare": "ipusim.app.notebook.comparison",
    "load": "ipusim.app.notebook.folder",
    "report": "ipusim.app.notebook.pages",
    "request": "ipusim.app.notebook.asked",
    "run": "ipusim.app.notebook.run",
    "suggest": "ipusim.app.notebook.suggestion",
    "sweep": "ipusim.app.notebook.sweep",
}


def __getattr__(name: str) -> Any:
    """Return a public name out of its module; raises AttributeError for any other."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return the public names beside what is here already."""
    return sorted({*globals(), *__all__})
