"""ipusim: a discrete-event simulator of pipeline execution on Graphcore IPUs.

What ``import ipusim`` offers needs no other module of the package: a
:class:`Request` of options by a scenario's own keys (:func:`request`), a
:class:`Run` of it (:func:`run`), a :class:`Comparison` of schedules on it
(:func:`compare`), a :class:`Sweep` of other values for its options
(:func:`sweep`), a :class:`Suggestion` of the best plan for it
(:func:`suggest`), a :class:`RunFolder` of what a run has written (:func:`load`), and a
page of such folders (:func:`report`). A schedule of your own is a function from a
:class:`Shape` to an :class:`Order` under the decorator :func:`schedule`; :func:`show`
prints an Order.
Each is imported when it is first asked for.
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
