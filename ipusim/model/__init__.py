"""Models executed by simulated IPUs: layers, losses, optimizers, datasets, and their costs.

As ``models`` of :mod:`ipusim.api` this package offers a model's stages, their work and their options. ``layers``,
``functions``, ``learning`` and ``datasets`` are separate names of the API.
"""

from typing import TYPE_CHECKING

from ipusim.base.lazy import lazy

if TYPE_CHECKING:
    from ipusim.model.collective_call import CollectiveCall
    from ipusim.model.host_call import HostCall
    from ipusim.model.learning.variable_work import Reduction, VariableSize, accumulation_work, with_variables
    from ipusim.model.profile import PassCost, StageProfile
    from ipusim.model.rows import Row
    from ipusim.model.stages.stage_options import PARTIALS_BYTES, PlanOptions, StageOptions
    from ipusim.model.work import ID_BYTES, Convolution, MeasuredWork, Product, TableBytes, in_turn
else:
    __getattr__, __dir__ = lazy(__name__)
