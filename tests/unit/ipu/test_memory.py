"""Pipelines in Python that do not fit: the advice is in the names that Python users have."""

from __future__ import annotations

from dataclasses import replace

import autograd.numpy as anp
import numpy as np
import pytest

from ipusim.analysis.fit import remote_verdict
from ipusim.base.errors import OutOfMemoryError
from ipusim.ipu import get_variable
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
from ipusim.ipu.optimizers import GradientDescentOptimizer, MomentumOptimizer
from ipusim.ipu.runtime.program_request import check_memory
from ipusim.ipu.runtime.weight_update import OptimizerFunctionOutput
from ipusim.schedules.registry import find

SGD = GradientDescentOptimizer(0.1)


def remote():
    config = IPUConfig()
    config.auto_select_ipus = 4
    config.device_connection.enable_remote_buffers = True
    config.optimizations.minimum_remote_tensor_size = 1
    return config


def weighted(elements):
    return lambda x: anp.sum(x) * get_variable("w", np.ones(elements, np.float32))[0]


def learning(optimizer):
    return lambda loss: OptimizerFunctionOutput(optimizer, loss)


def trained(run, first, optimizer=None, width=2, **arguments):
    """Run a training of four stages, or inference without an optimizer, that sums up what the first gives."""
    return run(
        computational_stages=[first, lambda x: x, lambda x: x, anp.sum],
        infeed_queue=IPUInfeedQueue(repeat([np.ones(width, np.float32)])),
        optimizer_function=learning(optimizer) if optimizer else None,
        **arguments,
    )


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (
            {"first": lambda x: anp.tanh(x * get_variable("w", 1.0)), "width": 1000, "optimizer": SGD},
            "Set IPUConfig.allow_recompute, take PipelineSchedule.Interleaved, whose FIFOs are half as deep, or feed "
            "smaller micro-batches.",
        ),
        (
            {"first": weighted(1000)},
            "Cut the model into more computational_stages on more IPUs, or take another device_mapping.",
        ),
        (
            {"first": lambda x: anp.sum(x[:1]) * get_variable("w", 1.0), "width": 1000, "optimizer": SGD},
            "Feed smaller micro-batches: a whole element of a queue lies on this IPU.",
        ),
    ],
    ids=["FIFOs", "parameters", "feed"],
)
def test_out_of_memory_names_a_remedy_of_the_python_door(run, arguments, remedy):
    found = trained(run, **arguments)
    with pytest.raises(OutOfMemoryError) as caught:
        check_memory(replace(found.memory, sram_bytes=100), found.system, find("grouped"))
    assert str(caught.value).startswith("Out of memory on IPU 0: ")
    assert str(caught.value).endswith(f" {remedy}")
    for name in ("memory: report", "pipeline.", "system."):
        assert name not in str(caught.value)


def test_streaming_memory_that_is_too_small_is_refused_as_in_a_scenario(run):
    found = trained(run, weighted(1000), MomentumOptimizer(0.1, 0.5), config=remote())
    check_memory(found.memory, found.system, find("grouped"))
    system = replace(found.system, streaming=replace(found.system.streaming, capacity_bytes=100))
    small = replace(found.memory, streaming=remote_verdict(found.memory.footprint, system))
    assert small.fits == "does not fit"
    with pytest.raises(
        OutOfMemoryError, match=r"^Out of Streaming Memory beside IPUs 0 to 3: 3\.906 KiB of 100 B\. Off"
    ):
        check_memory(small, system, find("grouped"))
