"""Why a run takes as long as it does: the critical path and idle causes add up, whatever is run.

That they do for scenarios of random options is checked where those run, in test_option_combinations.py.
"""

import pytest

from ipusim.lowering.lower import lower
from ipusim.pipeline.plan import Sync
from tests.effort import seeds
from tests.plans import price_and_run
from tests.properties.test_machine_invariants import drawn
from tests.run_checks import check_explained


@pytest.mark.parametrize("sync", list(Sync))
@pytest.mark.parametrize("seed", seeds(15))
def test_random_orders_are_explained_to_the_cycle(seed, sync):
    program, order, system = drawn(seed)
    check_explained(price_and_run(lower(order, sync), program, system))
