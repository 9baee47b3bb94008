"""Programs in Graphcore's names on TensorFlow, as tests write them in Python: one process for many small ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.tensorflow_tests import needs_tensorflow


@contextmanager
def hosted_names(major: int = 1) -> Iterator[SimpleNamespace]:
    """TensorFlow of a version as ``tf`` and Graphcore's package as ``ipu``, with a graph and no device of before."""
    needs_tensorflow()
    from ipusim.ipu.imports.hosted import hosted  # noqa: PLC0415
    from ipusim.ipu.runtime.program_state import configure  # noqa: PLC0415

    configure(None)
    try:
        with hosted(major) as faces:
            names = {"tf": faces.find("tensorflow"), "ipu": faces.find("tensorflow.python.ipu")}
            yield SimpleNamespace(**names, keras=faces.find("tensorflow.keras"))
    finally:
        configure(None)


@dataclass
class RanProgram:
    """What a program in a session leaves.

    Attributes:
        job: of its only pipeline or loop.
        timeline: of the last run.
        sent: what the outfeed gives; of several runs, that of each.
        variables: all variables behind the last run, by name.
        results: what the computation returns in the last run.
    """

    job: Any
    timeline: Any
    sent: Any
    variables: Mapping[str, np.ndarray]
    results: Any

    @property
    def spans(self) -> list[tuple[Any, ...]]:
        """The spans of the Timeline."""
        columns = ("start", "end", "kind", "ipu", "stage", "micro_batch", "execution", "time_step")
        return list(zip(*(getattr(self.timeline, each).tolist() for each in columns), strict=True))


def configure(names: SimpleNamespace, ipus: int, **attributes: Any) -> Any:
    """Configure a device with so many IPUs; attributes by dotted names with two underscores for a dot."""
    config = names.ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    for name, value in attributes.items():
        *path, last = name.split("__")
        target = config
        for each in path:
            target = getattr(target, each)
        setattr(target, last, value)
    config.configure_ipu_system()
    return config


def run(
    names: SimpleNamespace,
    network: Any,
    outfeed: Any,
    infeeds: Sequence[Any] = (),
    feeds: Sequence[Mapping[Any, Any]] = ({},),
    inputs: Sequence[Any] = (),
) -> RanProgram:
    """Compile a network, run it in a session once for each of ``feeds``, and return what is left."""
    from ipusim.ipu.graph.reading import read_graph  # noqa: PLC0415
    from ipusim.ipu.graph.registry import entry_of  # noqa: PLC0415
    from ipusim.ipu.traced.device_program import DeviceProgram  # noqa: PLC0415

    tf, ipu = names.tf, names.ipu
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        compiled = ipu.ipu_compiler.compile(network, list(inputs))
    dequeued = () if outfeed is None else outfeed.dequeue()
    sent, results = [], None
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), *(each.initializer for each in infeeds)])
        for feed in feeds:
            results = session.run(compiled, feed)
            sent.append(session.run(dequeued) if outfeed is not None else None)
        variables = {each.op.name: each for each in tf.global_variables()}
        values = dict(zip(variables, session.run(list(variables.values())), strict=True))
        nodes = read_graph(tf.get_default_graph()).nodes.values()
        entries = [entry for node in nodes if (entry := entry_of(node)) is not None]
        (program,) = [each.value for each in entries if isinstance(each.value, DeviceProgram)]
        placed = program._placed[session]
        result = sent[0] if len(sent) == 1 else sent
        return RanProgram(placed.session.job, program.timelines[session], result, values, results)
