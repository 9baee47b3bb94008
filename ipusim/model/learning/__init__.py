"""Learning of weights: optimizers, gradient maps, and the work of accumulation and update.

As ``learning`` of :mod:`ipusim.api` this room offers optimizers, and the parts of a user-defined optimizer.
"""

from typing import TYPE_CHECKING

from ipusim.base.lazy import lazy

if TYPE_CHECKING:
    from ipusim.model.learning.accumulating_optimizers import Adadelta, Adagrad, Ftrl
    from ipusim.model.learning.adaptive_optimizers import Adam, RMSProp
    from ipusim.model.learning.optimizers import SGD, Momentum, StageUpdate
    from ipusim.model.learning.table import rows
else:
    __getattr__, __dir__ = lazy(__name__)
