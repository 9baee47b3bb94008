"""ipusim: a discrete-event simulator of pipeline execution on Graphcore IPUs.

``import ipusim`` alone offers: a :class:`Request` with options under a scenario's keys (:func:`request`), a
:class:`Run` of a request (:func:`run`), a :class:`Comparison` of schedules (:func:`compare`), a :class:`Sweep` over
values of options (:func:`sweep`), a :class:`Suggestion` of the best plan (:func:`suggest`), a :class:`RunFolder` with
the results of a run (:func:`load`), and a page about several folders (:func:`report`). A new schedule is a function
from a :class:`Shape` to an :class:`Order` under the decorator :func:`schedule`; :func:`show` prints an Order. Imports
are deferred until first use.
"""

from typing import TYPE_CHECKING

from ipusim.base.lazy import lazy
from ipusim.base.version import __version__

if TYPE_CHECKING:
    from ipusim.app.notebook.comparison import Comparison, compare
    from ipusim.app.notebook.folder import RunFolder, load
    from ipusim.app.notebook.orders import show
    from ipusim.app.notebook.pages import report
    from ipusim.app.notebook.request import request
    from ipusim.app.notebook.run import Run, run
    from ipusim.app.notebook.suggestion import Suggestion, suggest
    from ipusim.app.notebook.sweep import Sweep, sweep
    from ipusim.app.render.picture import Picture
    from ipusim.base.errors import IpusimError
    from ipusim.pipeline.order import Order
    from ipusim.pipeline.shape import PlanShape as Shape
    from ipusim.runs.problems import RequestError
    from ipusim.runs.request.request import Request
    from ipusim.schedules.decorator import schedule
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "Comparison",
    "IpusimError",
    "Order",
    "Picture",
    "Request",
    "RequestError",
    "Run",
    "RunFolder",
    "Shape",
    "Suggestion",
    "Sweep",
    "__version__",
    "compare",
    "load",
    "report",
    "request",
    "run",
    "schedule",
    "show",
    "suggest",
    "sweep",
]
