"""Options of products in programs reach their plans, and a variable in parts has one stage."""

from fractions import Fraction

import numpy as np
import pytest

from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.runtime.pipeline_options import PipelineStageOptions
from tests.programs import pipelined

SHARE = {"availableMemoryProportion": "0.001"}
OPTIONS = [PipelineStageOptions(matmul_options={**SHARE, "partialsType": "half"})] * 2
#: Share of the memory and bytes of a partial sum: as asked for, of the device alone, and by default.
ASKED, OF_DEVICE, DEFAULT = (Fraction(1, 1000), 2), (Fraction(1, 1000), 4), (None, 4)


def train(names, variables, **arguments):
    """Train a stage for each name of a variable, with the product of its input and the variable."""
    tf = names.tf

    def product(name):
        def stage(x):
            with tf.variable_scope("", reuse=tf.AUTO_REUSE):
                return tf.matmul(x, tf.get_variable(name, [16, 16]))

        return stage

    *stages, last = map(product, variables)
    stages.append(lambda x: tf.reduce_mean(last(x)))
    dataset = tf.data.Dataset.from_tensors(np.ones((4, 16), np.float32)).repeat()
    optimizer = names.ipu.optimizers.CrossReplicaOptimizer(tf.train.GradientDescentOptimizer(0.1))
    return pipelined(names, stages, dataset, 12, ipus=4, optimizer=optimizer, **arguments)


@pytest.mark.parametrize(
    ("arguments", "forward", "backward"),
    [
        ({"forward_propagation_stages_poplar_options": OPTIONS}, ASKED, DEFAULT),
        ({"backward_propagation_stages_poplar_options": OPTIONS}, DEFAULT, ASKED),
        ({"device": {"matmuls__poplar_options": SHARE}}, OF_DEVICE, OF_DEVICE),
    ],
    ids=["of forward passes", "of backward passes", "of the device"],
)
def test_options_of_products_reach_their_plans(names, arguments, forward, backward):
    for stage in train(names, "ab", **arguments).job.program.stages:
        for passes, planned in ((stage.forward, forward), (stage.backward, backward)):
            assert {(work.memory_proportion, work.partials_itemsize) for work in passes if work.products} == {planned}


def test_a_shared_variable_in_parts_is_refused(names):
    device = {"device_connection__enable_remote_buffers": True}
    with pytest.raises(UnsupportedProgramError, match=r"^replicated_weight_sharding: .* got 'a' in several"):
        train(names, "aab", device_mapping=[0, 0, 1], replicated_weight_sharding=True, device=device)
