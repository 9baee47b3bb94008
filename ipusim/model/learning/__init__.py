"""How weights learn: optimizers, functions of gradients, and the work of accumulating and updating.

As ``learning`` of :mod:`ipusim.api` this room offers the optimizers, and what one of one's own is made of.
"""

from typing import TYPE_CHECKING

from ipusim.base.lazy import lazy

if TYPE_CHECKING:
    from ipusim.model.learning.accumulating_optimizers import Adadelta, Adagrad, Ftrl
    from ipusim.model.learning.adaptive_optimizers import Adam, RMSProp
    from ipusim.model.learning.optimizers import SGD, Momentum, Updated
    from ipusim.model.learning.table import rows
else:
    __getattr__, __dir__ = lazy(__name__)
