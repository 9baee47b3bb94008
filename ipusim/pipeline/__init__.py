"""A pipeline as data: program, operations, Plan, and rules for every Plan.

As ``pipelines`` of :mod:`ipusim.api` this package offers parts of programs and Plans, and holders of memory;
``rules`` is a separate module of the API.
"""

from typing import TYPE_CHECKING

from ipusim.base.lazy import lazy

if TYPE_CHECKING:
    from ipusim.pipeline.check import check_plan
    from ipusim.pipeline.feeds import Outfeed
    from ipusim.pipeline.footprint import StageFootprint
    from ipusim.pipeline.grid import format_grid, parse_mapping
    from ipusim.pipeline.holders import LAYERS, Holder
    from ipusim.pipeline.instructions import text_of
    from ipusim.pipeline.io_tiles import IoTiles
    from ipusim.pipeline.liveness import Levels, Peak, alive, spread_levels, stage_levels
    from ipusim.pipeline.offload import Destination, Offload
    from ipusim.pipeline.ops import Op, Pass
    from ipusim.pipeline.order import CopyRule, Edge, Order
    from ipusim.pipeline.plan import idealised, order_and_sync
    from ipusim.pipeline.shape import PlanShape
    from ipusim.pipeline.time_steps import earliest as earliest_time_steps
    from ipusim.pipeline.time_steps import needs
else:
    __getattr__, __dir__ = lazy(__name__)
