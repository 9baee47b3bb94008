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

from typing import TYPE_CHECKING

from ipusim.base.lazy import lazy
from ipusim.base.version import __version__

if TYPE_CHECKING:
    from ipusim.app.notebook.comparison import Comparison, compare
    from ipusim.app.notebook.folder import RunFolder, load
    from ipusim.app.notebook.pages import report
    from ipusim.app.notebook.request import request
    from ipusim.app.notebook.run import Run, run
    from ipusim.app.notebook.suggestion import Suggestion, suggest
    from ipusim.app.notebook.sweep import Sweep, sweep
    from ipusim.base.errors import IpusimError
    from ipusim.runs.problems import RequestError
    from ipusim.runs.request.request import Request
else:
    __getattr__, __dir__ = lazy(__name__)

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
