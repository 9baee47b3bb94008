"""Price a Plan on a System: convert work, bytes and meetings to whole cycles.

As ``pricing`` of :mod:`ipusim.api` this room offers prices with terms, and prices of single parts without a Plan.
"""

from typing import TYPE_CHECKING

from ipusim.base.lazy import lazy

if TYPE_CHECKING:
    from ipusim.pricing.code import code_users, least_code
    from ipusim.pricing.collectives import all_gathers, all_reduce_cycles, cycles_in_turn, host_update_cycles
    from ipusim.pricing.copies import copy_costs, send_costs, traffic
    from ipusim.pricing.costs import HostCosts, Send
    from ipusim.pricing.exchanges import HostExchange, weight_copies
    from ipusim.pricing.laws import laws_with
    from ipusim.pricing.passes import pass_cycles
    from ipusim.pricing.planner.plan import AVAILABLE_MEMORY_PROPORTION, ProductPlan, plan_product
    from ipusim.pricing.planner.product import Product as PlannedProduct
    from ipusim.pricing.planner.rates import DEFAULT_PLANNER_RATES, PLANNER_RATES, PlannerRates
    from ipusim.pricing.planner.work import SplitWork, smooth_cycles
    from ipusim.pricing.price import counts_update, price_plan, streamed_state_bytes
    from ipusim.pricing.terms import TermRow, terms_of
else:
    __getattr__, __dir__ = lazy(__name__)
