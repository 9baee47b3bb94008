"""A user's own Python functions: found in files, called, differentiated by autograd, and counted.

As ``functions`` of :mod:`ipusim.api` this room offers what surrounds a stage's function while it runs (its variables,
its replica, the host's scopes), what such a function calls, and how an operation with a gradient of its own is called.
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
    from ipusim.model.functions.counting import count_passes, unseen
    from ipusim.model.functions.gradient import pullback_of_several
    from ipusim.model.functions.host_rows import look_up
    from ipusim.model.functions.host_scope import check_on_ipu, on_host
    from ipusim.model.functions.layer_call import Call, run_layer
    from ipusim.model.functions.operation_call import operate, operate_without_gradient
    from ipusim.model.functions.python_file import load_file
    from ipusim.model.functions.replica import Replica
    from ipusim.model.functions.surrounded import HostScope, Lookup, Surrounded, inside, surroundings
    from ipusim.model.functions.traced_array import refusing_plain_numpy
    from ipusim.model.functions.untrained import Untrained, check_same
    from ipusim.model.functions.users_code import Failing, line_of, message_of, name_of, package_of
    from ipusim.model.functions.variables import (
        Readable,
        check_inside,
        draw_key,
        get_variable,
        noting,
    )
else:
    __getattr__, __dir__ = lazy(__name__)
