"""What several hosts do together, called with arguments that it does not take."""

import numpy as np
import pytest

from tests.programs import needs_tensorflow

needs_tensorflow(at_import=True)

from ipusim.ipu import horovod as hvd  # noqa: E402 - which needs TensorFlow
from ipusim.ipu.host_strategies import (  # noqa: E402 - as above
    IPUHorovodStrategy,
    IPUMultiReplicaStrategy,
    IPUMultiWorkerStrategy,
)
from ipusim.ipu.runtime import distribute  # noqa: E402 - as above
from tests.unit.ipu.test_misuse import NAME, TRUTH, VALUES, complaint, of  # noqa: E402 - as above

CASES = [
    *of("allreduce", hvd.allreduce, {"tensor": lambda: 1.0}, op=(["None"],)),
    *of("allgather", hvd.allgather, {"tensor": lambda: np.ones(2)}, name=(NAME,)),
    *of("broadcast", hvd.broadcast, {"tensor": lambda: 1.0, "root_rank": lambda: 0}, root_rank=(["0"],), name=(NAME,)),
    *of(
        "IPUHorovodStrategy",
        IPUHorovodStrategy,
        {},
        ipu_device=([],),
        variables_on_host=(TRUTH,),
    ),
    *of(
        "IPUMultiReplicaStrategy",
        IPUMultiReplicaStrategy,
        {},
        ipu_device=([],),
        add_ipu_cross_replica_reductions=(TRUTH,),
    ),
    *of(
        "IPUMultiWorkerStrategy",
        IPUMultiWorkerStrategy,
        {"cluster_resolver": distribute.cluster_resolver.TFConfigClusterResolver},
        cluster_resolver=([],),
        ipu_device=([],),
        variables_on_host=(TRUTH,),
    ),
    *of(
        "Server",
        distribute.Server,
        {"server_or_cluster_def": dict},
        job_name=(NAME,),
        task_index=(["None", "0", "1"],),
    ),
    *of(
        "reduce",
        lambda **given: IPUHorovodStrategy().reduce(**given),
        {"reduce_op": lambda: "SUM", "value": lambda: np.ones(2)},
        reduce_op=([],),
        axis=(["None", "-1", "0"],),
    ),
]


@pytest.mark.parametrize("argument", CASES, ids=lambda argument: f"{argument.label}({argument.name})")
def test_what_an_argument_does_not_take_is_refused_by_name(argument):
    assert {value: told for value in VALUES if (told := complaint(argument, value))} == {}
