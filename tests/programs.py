"""Programs in Graphcore's names on TensorFlow: small ones, those of scenarios, and programs of several hosts.

Tests that need TensorFlow skip with a reason where it is not installed, and fail where ``IPUSIM_TENSORFLOW=required``
is set, as .ci/run does.
"""

import contextvars
import functools
import io
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ipusim.api import datasets
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.programs.program_file import ProgramFile
from ipusim.ipu.runtime.recording import ProgramRecord, Recorder, recording
from tests.scenarios import SCENARIOS


def needs_tensorflow(*, at_import=False):
    """Skip the test that runs, or fail it where TensorFlow is required, unless TensorFlow and tf_keras are there.

    With ``at_import`` it is all tests of the module that is imported.
    """
    missing = [name for name in ("tensorflow", "tf_keras") if util.find_spec(name) is None]
    if missing and os.environ.get("IPUSIM_TENSORFLOW") == "required":
        pytest.fail(f"tests of programs are required here: {' and '.join(missing)} is not installed")
    if missing:
        pytest.skip(
            f"{' and '.join(missing)} is not installed: pip install -e '.[tensorflow]'", allow_module_level=at_import
        )


def tensorflow() -> Any:
    """TensorFlow, once :func:`needs_tensorflow` lets the test go on."""
    needs_tensorflow()
    from ipusim.ipu.graph.tensorflow_import import load  # noqa: PLC0415

    return load()


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
        runs: what the outfeed gives in each run.
        variables: all variables behind the last run, by name.
        results: what the computation returns in the last run.
    """

    job: Any
    timeline: Any
    runs: Sequence[Any]
    variables: Mapping[str, np.ndarray]
    results: Any

    @property
    def sent(self) -> Any:
        """What the outfeed gives; of several runs, that of each."""
        return self.runs[0] if len(self.runs) == 1 else self.runs

    @property
    def losses(self) -> np.ndarray:
        """The first tensor that the outfeed has, of all runs."""
        return np.concatenate([each[0] if isinstance(each, list | tuple) else each for each in self.runs])

    @property
    def spans(self) -> list[tuple[Any, ...]]:
        """The spans of the Timeline."""
        columns = ("start", "end", "kind", "ipu", "stage", "micro_batch", "execution", "time_step")
        return list(zip(*(getattr(self.timeline, each).tolist() for each in columns), strict=True))


def configure(names: SimpleNamespace, ipus: int, **attributes: Any) -> Any:
    """Configure a device with so many IPUs, and attributes as for :func:`configured`."""
    config = configured(auto_select_ipus=ipus, **attributes)
    config.configure_ipu_system()
    return config


def configured(**attributes: Any) -> IPUConfig:
    """Return a configuration with these attributes; a double underscore stands for a dot."""
    config = IPUConfig()
    for name, value in attributes.items():
        *path, last = name.split("__")
        target: Any = config
        for each in path:
            target = getattr(target, each)
        setattr(target, last, value)
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
        placed = program._placements[session]
        return RanProgram(placed.session.job, program.timelines[session], sent, values, results)


def pipelined(
    names: SimpleNamespace,
    stages: Sequence[Any],
    dataset: Any,
    count: int,
    *,
    ipus: int | None = None,
    device: Mapping[str, Any] | None = None,
    optimizer: Any = None,
    mode: str = "ALL",
    queue: Any = None,
    feeds: Sequence[Mapping[Any, Any]] = ({},),
    inputs: Sequence[Any] = (),
    **arguments: Any,
) -> RanProgram:
    """Compile a pipeline, run it in a session once for each of ``feeds``, and return what is left.

    Args:
        names: TensorFlow and Graphcore's package.
        stages: functions of the stages.
        dataset: of the infeed.
        count: micro-batches of an execution.
        ipus: IPUs of the device that is configured first; None configures none.
        device: attributes of that device, as for :func:`configure`.
        optimizer: what trains on the last result of the last stage, or a function that makes it; None for inference.
        mode: of the outfeed.
        queue: an outfeed of the stages' own, whose elements are returned in place of the pipeline's.
        feeds: of each run of the session.
        inputs: of the pipeline.
        arguments: of the pipeline.
    """
    ipu = names.ipu
    if ipus is not None:
        configure(names, ipus, **device or {})
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(ipu.ipu_outfeed_queue.IPUOutfeedMode[mode])

    def learn(*outputs: Any) -> Any:
        made = optimizer() if callable(optimizer) else optimizer
        return ipu.pipelining_ops.OptimizerFunctionOutput(made, outputs[-1])

    def network(*values: Any) -> Any:
        given = {"infeed_queue": infeed, "outfeed_queue": outfeed, "inputs": list(values)}
        given["optimizer_function"] = None if optimizer is None else learn
        return ipu.pipelining_ops.pipeline(stages, count, **given | arguments)

    return run(names, network, queue or outfeed, [infeed], feeds, inputs)


HEAD = """
import pickle
import numpy as np
import horovod.tensorflow as hvd
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.horovod.ipu_horovod_strategy import IPUHorovodStrategy
from tensorflow.python.ipu.horovod.popdist_strategy import PopDistStrategy
from tensorflow.python.ipu.ipu_multi_worker_strategy import IPUMultiWorkerStrategy
"""
KEPT = """
with open(__file__.replace("program.py", f"{hvd.rank()}.pickle"), "wb") as file:
    pickle.dump(program(), file)
"""


def on_hosts(text, count, *, version=1):
    """Run a program that defines ``program()`` on so many hosts, in a folder of its own; return its results by rank."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(HEAD + text + KEPT)
        ProgramFile(path).run(hosts=count, tensorflow=version)
        return [pickle.loads(Path(folder, f"{rank}.pickle").read_bytes()) for rank in range(count)]


PROGRAMS = SCENARIOS / "python"
#: Most programs learn the same images.
_drawn = functools.cache(datasets.synthetic_classes)


@dataclass
class LastRun:
    """The last run of a pipeline or a loop.

    Attributes:
        name: its name.
        timeline: Timeline of the run.
        job: what ran.
        variables: variables of the machine behind the run, by name.
    """

    name: str
    timeline: Any
    job: Any
    variables: Mapping[str, Any]


class Ran(ProgramFile):
    """A program as it ran, and what it leaves.

    Attributes:
        out: what it printed.
        names: its names.
        programs: last run of each pipeline and loop, in the order of their first run.
        recorded: pipelines and loops with their session runs.
    """

    def __init__(self, path: Path, arguments: Sequence[str] = ()) -> None:
        """Run it; what it raises is raised."""
        needs_tensorflow()
        super().__init__(path)
        import ipusim.ipu.imports.hosted  # noqa: F401, PLC0415 - its settings stay in the process's environment
        from ipusim.ipu.traced.device_program import DeviceProgram  # noqa: PLC0415 - which imports TensorFlow

        run, found, printed = DeviceProgram.run, {}, io.StringIO()

        def noted(program: Any, invocation: Any, running: Any, *rest: Any) -> Any:
            result = run(program, invocation, running, *rest)
            session = program._placements[running.session].session
            timeline = program.timelines[running.session]
            found[program] = LastRun(program.name, timeline, session.job, session.variables())
            return result

        with redirect_stdout(printed), pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "environ", os.environ.copy())
            patch.setattr(datasets, "synthetic_classes", _drawn)
            patch.setattr(DeviceProgram, "run", noted)
            contextvars.Context().run(self._recorded, arguments)
        self.out, self.programs = printed.getvalue(), tuple(found.values())

    def _recorded(self, arguments: Sequence[str]) -> None:
        with recording(Recorder()) as found:
            self.run(arguments)
        self.recorded: tuple[ProgramRecord, ...] = found.programs

    def _execute(self, module: ModuleType) -> None:
        super()._execute(module)
        self.names = dict(vars(module))


@functools.cache
def once(name: str, *arguments: str) -> Ran:
    """Run a program of scenarios/python/, unless it ran with these arguments: nobody may change what is returned."""
    return Ran(PROGRAMS / f"{name}.py", arguments)
