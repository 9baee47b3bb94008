"""Training steps that TensorFlow traces, as tests cut, run and hold them against TensorFlow's own session."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.programs import tensorflow


@dataclass
class Model:
    """A model as functions of stages.

    Attributes:
        stages: each takes tensors and returns a tensor or a tuple; the last returns the loss.
        shapes: shape and dtype of each input of a micro-batch.
        optimizer: makes TensorFlow's optimizer.
        classes: number of classes of whole-number inputs.
    """

    stages: Sequence[Callable[..., Any]]
    shapes: Sequence[tuple[tuple[int, ...], Any]]
    optimizer: Callable[[Any], Any]
    classes: int = 10
    variables: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass
class Built:
    """A traced model, with what TensorFlow's session needs to train it."""

    step: Any
    graph: Any
    feeds: list[Any]
    loss: Any
    train: Any
    variables: list[Any]
    pairs: list[Any]
    update: Any


def build(model: Model) -> Built:
    """Trace a model into a graph of its own, as a program of TensorFlow 1 does, and TensorFlow's training beside it."""
    tf = tensorflow()
    from ipusim.ipu.graph.tracing import StepTracer  # noqa: PLC0415

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(1)
        v1.enable_control_flow_v2()
        with v1.variable_scope("", use_resource=True):
            tracer = StepTracer()
            with tracer.feed():
                feeds = [v1.placeholder(dtype, shape) for shape, dtype in model.shapes]
                values: Any = [tf.identity(feed) for feed in feeds]
            for function in model.stages:
                values = tracer.stage(function, values)
                values = values if isinstance(values, tuple | list) else [values]
            loss = values[0]
            optimizer = model.optimizer(v1)
            pairs = tracer.gradients(lambda: optimizer.compute_gradients(loss))
            update = tracer.update(optimizer.apply_gradients, pairs)
            step = tracer.step([loss])
            train = optimizer.apply_gradients(pairs)
        return Built(step, graph, feeds, loss, train, v1.global_variables(), pairs, update)


def micro_batches(model: Model, count: int, seed: int = 0) -> list[list[np.ndarray]]:
    """Inputs of so many micro-batches."""
    rng = np.random.default_rng(seed)

    def drawn(shape, dtype):
        if np.dtype(dtype).kind in "iu":
            return rng.integers(0, model.classes, shape).astype(dtype)
        return rng.standard_normal(shape).astype(dtype)

    return [[drawn(*each) for each in model.shapes] for _ in range(count)]


def initial_values(built: Built) -> dict[str, np.ndarray]:
    """The values that TensorFlow's initializers give the variables, by shared name."""
    v1 = tensorflow().compat.v1
    from ipusim.ipu.graph.tracing import variable_name  # noqa: PLC0415

    with v1.Session(graph=built.graph) as session:
        session.run(v1.variables_initializer(built.variables))
        return dict(zip(map(variable_name, built.variables), session.run(built.variables), strict=True))


def accumulate_with_tensorflow(built: Built, batches: Sequence[Any], count: int) -> tuple[Any, list[float]]:
    """Initial values, and the losses of all micro-batches, with an update behind each ``count`` of them."""
    v1 = tensorflow().compat.v1
    losses, gradients = [], [gradient for gradient, _ in built.pairs]
    accumulators = [f"{tensor.node}:{tensor.number}" for tensor in built.step.accumulators.values()]
    with v1.Session(graph=built.graph) as session:
        session.run(v1.variables_initializer(built.variables))
        for start in range(0, len(batches), count):
            total = None
            for batch in batches[start : start + count]:
                loss, *found = session.run([built.loss, *gradients], dict(zip(built.feeds, batch, strict=True)))
                losses.append(float(loss))
                total = found if total is None else [a + b for a, b in zip(total, found, strict=True)]
            session.run(built.update, dict(zip(accumulators, total, strict=True)))
    return initial_values(built), losses


def _forward(built: Built, stages: Sequence[Any], invocation: Any, batch: Sequence[np.ndarray]) -> Iterator[Any]:
    """Yield the values of each stage of a micro-batch, and what it keeps."""
    from ipusim.ipu.graph.node import Output  # noqa: PLC0415

    fed = {Output(tensor.op.name, 0): value for tensor, value in zip(built.feeds, batch, strict=True)}
    # The feed's nodes are identities of the placeholders.
    nodes = built.step.graph.nodes
    values: Any = [fed[nodes[tensor.node].inputs[0]] for tensor in stages[0].stage_cut.takes]
    for stage in stages:
        values, saved = stage.forward(invocation, values, {})
        yield values, saved


def train_with_ipusim(
    built: Built, initial: dict[str, np.ndarray], batches: Sequence[Any], observer: Any = None
) -> list[float]:
    """The losses of one update for each micro-batch, each pass run by itself, stage by stage."""
    from ipusim.ipu.graph.cut import cut_stages  # noqa: PLC0415
    from ipusim.ipu.graph.executable import Invocation  # noqa: PLC0415
    from ipusim.ipu.graph.node import Variable  # noqa: PLC0415
    from ipusim.ipu.graph.stage_passes import StagePasses  # noqa: PLC0415

    stages = [StagePasses(built.step.graph, one, observer) for one in cut_stages(built.step.trace)]
    update = built.step.weight_update()
    variables = {name: Variable(name, value) for name, value in initial.items()}
    losses = []
    for number, batch in enumerate(batches):
        invocation = Invocation(variables, (0, number))
        values, kept = zip(*_forward(built, stages, invocation, batch), strict=True)
        losses.append(float(values[-1][0]))
        arriving: Any = ()
        gradients: dict[str, np.ndarray] = {}
        for stage, saved in zip(reversed(stages), reversed(kept), strict=True):
            arriving, own = stage.backward(invocation, saved, arriving, {})
            gradients |= own
        update.run(Invocation(variables), [gradients[name] for name in built.step.accumulators])
    return losses


def traced_work(built: Built, initial: dict[str, np.ndarray], batch: Sequence[np.ndarray]) -> list[Any]:
    """The work of each stage, as one micro-batch shows it."""
    from ipusim.ipu.graph.cut import cut_stages  # noqa: PLC0415
    from ipusim.ipu.graph.executable import Invocation  # noqa: PLC0415
    from ipusim.ipu.graph.node import Variable  # noqa: PLC0415
    from ipusim.ipu.graph.prices.observed import Observation  # noqa: PLC0415
    from ipusim.ipu.graph.prices.passes import work_of_stage  # noqa: PLC0415
    from ipusim.ipu.graph.stage_passes import StagePasses  # noqa: PLC0415

    graph, cuts = built.step.graph, cut_stages(built.step.trace)
    observation = Observation(graph)
    stages = [StagePasses(graph, one, observation) for one in cuts]
    invocation = Invocation({name: Variable(name, value) for name, value in initial.items()})
    kept, forward, works, arriving = [], [], [], ()
    for _, saved in _forward(built, stages, invocation, batch):
        kept.append(saved)
        forward.append(observation.take())
    for number in reversed(range(len(stages))):
        arriving, _ = stages[number].backward(invocation, kept[number], arriving, {})
        works.append(work_of_stage(graph, cuts[number], forward[number], observation.take()))
    return works[::-1]


def job_of(
    layers: list[dict[str, Any]],
    data: dict[str, Any],
    splits: list[str],
    batch: int,
    optimizer: dict[str, Any],
    updates: int = 2,
) -> Any:
    """The Job of a scenario with these layers, of so many weight updates."""
    from ipusim.api import Request, assemble  # noqa: PLC0415

    count = 2 * (len(splits) + 1)
    pipeline = {"splits": splits, "micro_batch_size": batch, "gradient_accumulation_count": count}
    pipeline["repeat_count"] = updates
    options = {
        "system": {"name": "m2000"},
        "data": {"samples": updates * count * batch, **data},
        "model": {"layers": layers},
        "pipeline": pipeline,
        "optimizer": optimizer,
        "use_synthetic_data": True,
    }
    return assemble(Request.from_dict(options))
