"""Drawn programs in Graphcore's API whose stages call collectives and the host in the middle of their passes."""

from typing import Any

from hypothesis import strategies as st

from tests.random_runs import among

#: Schedules that a program is run under once more; the last two only train.
OTHERS = ("gpipe", "grouped", "interleaved", "sequential", "1f1b", "zero_bubble_h1")

TEXT = '''"""A pipeline of two stages, drawn for a record."""

from contextlib import nullcontext

import numpy as np

import tensorflow.compat.v1 as tf
from tensorflow.python.ipu import config, ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, scopes
from tensorflow.python.ipu.optimizers import CrossReplicaOptimizer
from tensorflow.python.ipu.ops import all_to_all_op, cross_replica_ops, pipelining_ops, reduce_scatter_op

ASKED = {asked}
X = np.random.default_rng(ASKED["seed"]).normal(size=(64, 6)).astype(np.float32)


def collective(z):
    group = min(2, ASKED["replicas"])
    match ASKED["collective"]:
        case "sum":
            return cross_replica_ops.cross_replica_sum(z, group)
        case "gather":
            return all_to_all_op.all_gather(z, group)
        case "scatter":
            return reduce_scatter_op.reduce_scatter(z, group)
        case "twice":
            return cross_replica_ops.cross_replica_sum(cross_replica_ops.cross_replica_sum(z, group) * z)
    return z


def host(stage):
    return scopes.outside_compilation_scope(f"outside{{stage}}") if stage in ASKED["outside"] else nullcontext()


def first(x):
    z = x + tf.get_variable("v", initializer=np.linspace(0.2, 1.2, 6, dtype=np.float32))
    with host(0):
        z = tf.tanh(z)
    return collective(z) if ASKED["early"] else z


def last(z):
    with host(1):
        z = tf.exp(z * 0.1)
    return tf.reduce_sum(collective(z) ** 2)


def learn(loss):
    return pipelining_ops.OptimizerFunctionOutput(CrossReplicaOptimizer(tf.train.GradientDescentOptimizer(1e-3)), loss)


infeed = ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(X).repeat())
outfeed = ipu_outfeed_queue.IPUOutfeedQueue()


def model():
    return pipelining_ops.pipeline(
        [first, last],
        gradient_accumulation_count=ASKED["count"],
        repeat_count=ASKED["executions"],
        pipeline_schedule=pipelining_ops.PipelineSchedule[ASKED["schedule"]],
        infeed_queue=infeed,
        outfeed_queue=outfeed,
        optimizer_function=learn if ASKED["training"] else None,
        name="drawn",
    )


device = config.IPUConfig()
device.auto_select_ipus = 2 * ASKED["replicas"]
device.allow_recompute = ASKED["recompute"]
device.configure_ipu_system()
compiled = ipu_compiler.compile(model)
with tf.Session() as session:
    session.run([tf.global_variables_initializer(), infeed.initializer])
    session.run(compiled)
'''


@st.composite
def programs_drawn(draw: st.DrawFn) -> dict[str, Any]:
    """Return what a program is asked for, and the options with which its pipeline runs once more."""
    asked = {
        "seed": draw(st.integers(0, 99)),
        "replicas": draw(among(2, 1, 4)),
        "collective": draw(among("sum", "gather", "scatter", "twice", "none")),
        "early": draw(st.booleans()),
        "outside": draw(among((), (0,), (1,), (0, 1))),
        "schedule": draw(among("Grouped", "Interleaved", "Sequential")),
        "recompute": draw(st.booleans()),
        "count": 4 * draw(st.integers(1, 2)),
        "executions": draw(st.integers(1, 2)),
        "training": draw(among(True, True, True, False)),
    }
    changes = {
        "pipeline.schedule": draw(among(*(OTHERS if asked["training"] else OTHERS[:-2]))),
        "pipeline.sync": draw(among("point_to_point", "lock_step")),
        "pipeline.overlap_copies": draw(st.booleans()),
        "pipeline.overlapped": draw(among("sum", "max", 700)),
        "pipeline.allow_recompute": False,
    }
    return {"asked": asked, "changes": changes}


def program_text(drawn: dict[str, Any]) -> str:
    """Return the program of what was drawn."""
    return TEXT.format(asked=drawn["asked"])
