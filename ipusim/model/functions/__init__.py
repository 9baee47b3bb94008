"""User-defined Python functions: loading from files, calls, differentiation by autograd, and work counts.

As ``functions`` of :mod:`ipusim.api` this room offers the surroundings of a running stage (untrained variables,
replica), and the collectives of replicas.
"""

from typing import TYPE_CHECKING

from ipusim.base.lazy import lazy

if TYPE_CHECKING:
    from ipusim.model.collective_call import Combination
    from ipusim.model.functions.collectives import (
        all_gather,
        all_reduce,
        all_to_all,
        own_chunk,
        reduce_scatter,
        reduce_scatter_gradient,
        replica_index,
    )
    from ipusim.model.functions.counting import count_passes
    from ipusim.model.functions.python_file import load_file
    from ipusim.model.functions.surrounded import Surrounded, surroundings
    from ipusim.model.functions.users_code import Failing
else:
    __getattr__, __dir__ = lazy(__name__)
