"""Programs that do not fit: the advice is in Graphcore's names."""

from dataclasses import replace

import numpy as np
import pytest

from ipusim.analysis.fit import remote_verdict
from ipusim.base.errors import OutOfMemoryError
from ipusim.ipu.runtime.program_request import check_memory
from ipusim.schedules.registry import find
from tests.programs import configure


def ran(run, first, optimizer="", width=2, **arguments):
    """Run a training of four stages, or inference without an optimizer, that sums up what the first gives."""
    tf, ops = run.names.tf, run.names.ipu.pipelining_ops
    made = {
        "sgd": lambda: tf.train.GradientDescentOptimizer(0.1),
        "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.5),
    }
    return run(
        computational_stages=[lambda x: first(tf, x), lambda x: x, lambda x: x, tf.reduce_sum],
        elements=np.ones((1, width), np.float32),
        optimizer_function=(lambda loss: ops.OptimizerFunctionOutput(made[optimizer](), loss)) if optimizer else None,
        **arguments,
    ).job


def weight(tf, *shape):
    return tf.get_variable("w", shape, initializer=tf.ones_initializer())


def weighted(tf, x):
    return tf.reduce_sum(x) * weight(tf, 1000)[0]


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (
            {"first": lambda tf, x: tf.tanh(x * weight(tf)), "width": 1000, "optimizer": "sgd"},
            "Set IPUConfig.allow_recompute, take PipelineSchedule.Interleaved, whose FIFOs are half as deep, or feed "
            "smaller micro-batches.",
        ),
        (
            {"first": weighted},
            "Cut the model into more computational_stages on more IPUs, or take another device_mapping.",
        ),
        (
            {"first": lambda tf, x: tf.reduce_sum(x[:1]) * weight(tf), "width": 1000, "optimizer": "sgd"},
            "Feed smaller micro-batches: a whole element of a queue lies on this IPU.",
        ),
    ],
    ids=["FIFOs", "parameters", "feed"],
)
def test_out_of_memory_names_a_remedy_in_graphcores_names(run, arguments, remedy):
    found = ran(run, **arguments)
    assert found.memory.is_known
    with pytest.raises(OutOfMemoryError) as caught:
        check_memory(replace(found.memory, sram_bytes=100), found.system, find("grouped"))
    assert str(caught.value).startswith("Out of memory on IPU 0: ")
    assert str(caught.value).endswith(f" {remedy}")
    for name in ("memory: report", "pipeline.", "system."):
        assert name not in str(caught.value)


def test_streaming_memory_that_is_too_small_is_refused_as_in_a_scenario(run):
    remote = {
        "device_connection__enable_remote_buffers": True,
        "optimizations__minimum_remote_tensor_size": 1,
    }
    configure(run.names, 4, **remote)
    found = ran(run, weighted, "momentum")
    check_memory(found.memory, found.system, find("grouped"))
    system = replace(found.system, streaming=replace(found.system.streaming, capacity_bytes=100))
    small = replace(found.memory, streaming=remote_verdict(found.memory.footprint, system))
    assert small.fits == "does not fit"
    with pytest.raises(
        OutOfMemoryError, match=r"^Out of Streaming Memory beside IPUs 0 to 3: 3\.906 KiB of 100 B\. Off"
    ):
        check_memory(small, system, find("grouped"))
