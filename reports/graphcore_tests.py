"""Run Graphcore's tests of their public TensorFlow against ipusim, and write the file of outcomes.

``python -m reports.graphcore_tests CHECKOUT`` runs the test files of ``KINDS`` unchanged, each in a separate process
with the imports of simulated programs, and writes the outcome of each test into ``graphcore_tests.csv``. CHECKOUT holds
``tensorflow/python/ipu``, ``tensorflow/compiler/plugin/poplar/tests`` and ``tensorflow/compiler/tests`` of
github.com/graphcore/tensorflow at ``COMMIT``. An optional second argument selects test files by a part of their paths;
other files keep their outcomes. This repository contains no text of these tests.

Poplar's own objects (reports, events, operations of the compiled plugin) are replaced by stand-ins that skip a test
with the reason. Tests that request IPUs get simulated ones.
"""

from __future__ import annotations

import csv
import json
import os
import re
import resource
import signal
import sys
import unittest
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module, util
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Final, NamedTuple

#: File of outcomes.
OUTCOMES: Final = Path(__file__).with_suffix(".csv")
#: Commit of the tested repository.
COMMIT: Final = "b2127bbabc09ef32150efdf468e3edf3c90ef460"
#: Globs of test files by kind, below ``tensorflow/``.
KINDS: Final = {
    "pipelining": ("python/ipu/tests/pipelining_*_test.py", "python/ipu/tests/pipelining_test.py"),
    "loops": (
        "python/ipu/tests/control_flow_ops_test.py",
        "python/ipu/tests/iteration_counter_test.py",
        "compiler/plugin/poplar/tests/while_loop_test.py",
        "compiler/plugin/poplar/tests/while_loop_sharded_test.py",
    ),
    "queues": (
        "python/ipu/tests/infeed_outfeed*_test.py",
        "python/ipu/tests/dataset_benchmark_test.py",
        "python/ipu/tests/outfeed_ordinal_test.py",
        "compiler/plugin/poplar/tests/synthetic_data_with_outfeeds_test.py",
    ),
    "optimizers": (
        "python/ipu/tests/gradient_accumulation_test.py",
        "python/ipu/tests/map_gradient_optimizer_test.py",
        "python/ipu/tests/capture_upstream_gradients_test.py",
        "python/ipu/tests/*stateful_gradient_accumulate_test.py",
        "compiler/plugin/poplar/tests/stateful_gradient_accumulate_test.py",
    ),
    "estimators": (
        "python/ipu/tests/*estimator*_test.py",
        "python/ipu/tests/ipu_session_run_hooks_test.py",
    ),
    "normalisation": (
        "python/ipu/tests/popnn_normalization_test.py",
        "compiler/plugin/poplar/tests/*batch_norm_test.py",
        "compiler/plugin/poplar/tests/group_norm_test.py",
    ),
    "recurrent layers": (
        "python/ipu/tests/rnn_test.py",
        "compiler/plugin/poplar/tests/lstm_test.py",
        "compiler/plugin/poplar/tests/gru_test.py",
    ),
    "embeddings": (
        "python/ipu/tests/*embedding_lookup*_test.py",
        "compiler/plugin/poplar/tests/*embedding_lookup_test.py",
    ),
    "collectives": (
        "python/ipu/tests/all_gather_test.py",
        "python/ipu/tests/gcl_test.py",
        "python/ipu/tests/*reduce_scatter_test.py",
        "python/ipu/tests/popops_cross_replica_*_test.py",
        "python/ipu/tests/replicat*_test.py",
        "python/ipu/tests/sharded_and_replicated_test.py",
        "python/ipu/tests/within_replicas_test.py",
        "python/ipu/distributed/*_test.py",
        "python/ipu/tests/ipu_multi_worker_strategy_test.py",
    ),
}
#: Limit of the processor time of a test file, in seconds.
_LIMIT: Final = 300
#: Limit of the elapsed time of a test file, in seconds, for tests that wait forever.
_IDLE_LIMIT: Final = 1800
#: Maximum length of a message, in characters.
_SHOWN: Final = 200
#: Packages of checkout modules imported by tests, with their folders below ``tensorflow/``.
_FOLDERS: Final = {"graphcore_helpers": "python/ipu", "graphcore_compiler": "compiler"}
#: Name of the module of Poplar stand-ins.
_POPLAR: Final = "graphcore_poplar"
#: Checkout modules and stand-ins, by the names that tests import.
_ROWS: Final = {
    "tensorflow.python.ipu.test_utils": "graphcore_helpers.test_utils",
    "tensorflow.python.ipu.tests": "graphcore_helpers.tests",
    "tensorflow.compiler.tests": "graphcore_compiler.tests",
    "tensorflow.compiler.plugin.poplar.ops": _POPLAR,
    "tensorflow.compiler.plugin.poplar.ops.gen_ipu_ops": _POPLAR,
    "tensorflow.compiler.plugin.poplar.driver": _POPLAR,
    "tensorflow.compiler.plugin.poplar.driver.trace_pb2": _POPLAR,
    "tensorflow.python.ipu.ops.functional_ops_grad": _POPLAR,
    "tensorflow.python.ipu.functional_ops._convert_to_list": "reports.graphcore_tests:flat_list",
    "tensorflow.python.ipu.pipelining_ops._to_flat_list": "reports.graphcore_tests:flat_list",
}
#: Command-line arguments passed to tests by Graphcore's builds.
_FLAGS: Final = ("test", "--test_device=IPU", "--types=DT_HALF,DT_FLOAT,DT_INT32,DT_INT64,DT_BOOL")


class Row(NamedTuple):
    """Test with its outcome.

    Attributes:
        file: path below ``tensorflow/``.
        test: class and method; empty for a file that does not load.
        outcome: "passed", "failed", "skipped" or "does not load".
        why: message; empty for a passed test.
    """

    file: str
    test: str
    outcome: str
    why: str


def files_of(checkout: Path) -> dict[str, str]:
    """Return the kinds of a checkout's test files by path below ``tensorflow/``."""
    top = checkout / "tensorflow"
    pairs = ((file, kind) for kind, globs in KINDS.items() for glob in globs for file in sorted(top.glob(glob)))
    return {str(file.relative_to(top)): kind for file, kind in pairs}


def flat_list(value: Any) -> list[Any]:
    """Return the leaves of a structure, an empty list for None; replaces two private functions called by tests."""
    from tensorflow.python.util import nest  # noqa: PLC0415 - TensorFlow

    return [] if value is None else nest.flatten(value)


def message(error: BaseException | str) -> str:
    """Return an error's message on one line, without folders and memory addresses."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    text = " ".join(re.sub(r"/\S*/", "", re.sub(r" at 0x[0-9a-f]+", "", text)).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]} ..."


class _Outcomes(unittest.TestResult):
    """Test result that reports the start and the outcome of each test immediately."""

    def __init__(self, tell: Callable[[str, str, str], None]) -> None:
        super().__init__()
        self._tell, self._reported = tell, set[str]()

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's name
        super().startTest(test)
        self._tell(_name(test), "", "")

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's name
        super().stopTest(test)
        self._say(test, "passed", "")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802 - unittest's name
        self._say(test, "skipped", message(reason))

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802 - unittest's name
        self._say(test, "failed", message(err[1]))

    addFailure = addError  # noqa: N815 - as above

    def addSubTest(self, test: unittest.TestCase, _: unittest.TestCase, err: Any) -> None:  # noqa: N802 - as above
        if err is not None:
            self.addError(test, err)

    def _say(self, test: unittest.TestCase, outcome: str, why: str) -> None:
        """Report the first outcome of a test; errors during clean-up do not change the outcome."""
        if (name := _name(test)) not in self._reported:
            self._reported.add(name)
            self._tell(name, outcome, why)


def _name(test: unittest.TestCase) -> str:
    return f"{type(test).__name__}.{test._testMethodName}"


class _Poplar:
    """Stand-in for a Poplar object; a call skips the test."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Poplar(f"{self._name}.{name}")

    def __call__(self, *_: object, **__: object) -> Any:
        raise unittest.SkipTest(f"calls {self._name}, of Poplar's compiled plugin")


class _Report:
    """Stand-in for a reader of Poplar's reports; reading a report skips the test."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def reset(self) -> None:
        """Do nothing, as no report exists."""

    def set_autoreport_options(self, *_: object, **__: object) -> None:
        """Do nothing, as no report will exist."""

    def __getattr__(self, name: str) -> Any:
        raise unittest.SkipTest(f"reads Poplar's report or events ({name})")


def _poplar_module(name: str) -> ModuleType:
    module = ModuleType(name)
    module.__getattr__ = lambda entry: getattr(_Poplar(name), entry)  # type: ignore[method-assign]
    return module


@contextmanager
def _imports(checkout: Path) -> Iterator[None]:
    """Provide the imports of simulated programs, the checkout's helpers, and stand-ins for Poplar."""
    from ipusim.ipu.imports.hosted import hosted  # noqa: PLC0415 - which imports TensorFlow

    for name, folder in _FOLDERS.items():
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [str(checkout / "tensorflow" / folder)]
    for name in ("pva", "popef", _POPLAR):
        sys.modules[name] = _poplar_module(name)
    with hosted(2, _ROWS) as faces:
        helpers = import_module("graphcore_helpers.test_utils")
        helpers.ReportJSON = helpers.ReportHelper = _Report  # type: ignore[attr-defined]
        _give_model_an_ipu()
        helpers.enable_ipu_events = lambda _: None  # type: ignore[attr-defined]
        helpers.skip_on_hw = lambda test: test  # type: ignore[attr-defined]
        # Graphcore's builds run tests without the switches that `import tensorflow` sets.
        faces.find("tensorflow.compat.v1.keras.layers").disable_v2_dtype_behavior()
        yield


def _give_model_an_ipu() -> None:
    """Give a configuration without devices one IPU, as Graphcore's IPU Model does."""
    from ipusim.ipu import config  # noqa: PLC0415 - which imports TensorFlow

    configure = config.configure_ipu_system

    def configured(given_config: Any, *arguments: Any, **options: Any) -> None:
        if isinstance(given_config, config.IPUConfig) and not config.device_count(given_config):
            given_config.auto_select_ipus = 1
        configure(given_config, *arguments, **options)

    config.configure_ipu_system = configured


def run_here(checkout: Path, file: str, tell: Callable[[str, str, str], None]) -> None:
    """Run a test file in this process.

    Args:
        checkout: folder with ``tensorflow/``.
        file: path below ``tensorflow/``.
        tell: called with a test's name, its outcome (empty at the start of the test) and the message.
    """
    from absl import flags  # noqa: PLC0415 - TensorFlow's

    path = checkout / "tensorflow" / file
    with _imports(checkout):
        try:
            spec = util.spec_from_file_location(path.stem, path)
            assert spec is not None
            assert spec.loader is not None
            module = sys.modules[path.stem] = util.module_from_spec(spec)
            spec.loader.exec_module(module)
            flags.FLAGS(_FLAGS, known_only=True)
            suite = unittest.defaultTestLoader.loadTestsFromModule(module)
        except (Exception, unittest.SkipTest) as error:
            tell("", "does not load", message(error))
            return
        suite.run(_Outcomes(tell))


def run_file(checkout: Path, file: str) -> list[Row]:
    """Run a test file in a separate process; return the rows of its tests, sorted by name."""
    with TemporaryDirectory() as temporary:
        report = Path(temporary, "told")
        report.touch()
        process = get_context("fork").Process(target=_in_process, args=(checkout, file, report))
        process.start()
        process.join(_IDLE_LIMIT)
        if is_late := process.is_alive():
            process.kill()
            process.join()
        end_reason = f"the process ended with {process.exitcode}"
        if is_late:
            end_reason = f"not done after {_IDLE_LIMIT} s of its file"
        elif process.exitcode == -signal.SIGXCPU:
            end_reason = f"not done after {_LIMIT} s of processor time of its file"
        lines = report.read_text(encoding="utf-8").splitlines()
    rows: dict[str, Row] = {}
    for test, outcome, why in map(json.loads, lines):
        if not test.endswith(".test_session"):  # a method of TensorFlow's TestCase, no test
            rows[test] = Row(file, test, outcome or "failed", why if outcome else end_reason)
    return [rows[test] for test in sorted(rows)] or [Row(file, "", "does not load", end_reason)]


def _in_process(checkout: Path, file: str, report: Path) -> None:
    """Run a test file in this new process, in the folder of ``report``; write outcomes as JSON lines."""
    resource.setrlimit(resource.RLIMIT_CPU, (_LIMIT, _LIMIT + 10))
    os.chdir(report.parent)
    os.environ |= {"TF_IPU_COUNT": "64", "HOME": str(report.parent)}
    silent = os.open(report.with_name("output"), os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(silent, stream)
    with report.open("w", encoding="utf-8", buffering=1) as lines:
        run_here(checkout, file, lambda *words: print(json.dumps(words), file=lines))


def read_rows() -> list[Row]:
    """Read the file of outcomes."""
    with OUTCOMES.open(newline="", encoding="utf-8") as lines:
        return [Row(**row) for row in csv.DictReader(lines)]


def _write(rows: Iterable[Row]) -> None:
    with OUTCOMES.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(rows)


def summary(rows: Sequence[Row], kinds: dict[str, str]) -> str:
    """Return test counts by kind and outcome, and the most frequent failures."""
    outcomes = ("passed", "failed", "skipped", "does not load")
    counts = Counter((kinds.get(row.file, ""), row.outcome) for row in rows)
    lines = [f"{'':17}" + "".join(f"{entry:>15}" for entry in outcomes)]
    lines += [f"{kind:17}" + "".join(f"{counts[kind, entry]:15}" for entry in outcomes) for kind in KINDS]
    total = Counter(row.outcome for row in rows)
    lines.append(f"{'all':17}" + "".join(f"{total[entry]:15}" for entry in outcomes))
    reasons = Counter(re.sub(r"\d+", "N", row.why)[:90] for row in rows if row.outcome in ("failed", "does not load"))
    return "\n".join([*lines, *(f"{count:5} {reason}" for reason, count in reasons.most_common(20))])


def main(checkout: Path, part: str = "") -> None:
    """Run files with ``part`` in their path, write outcomes, and print a summary."""
    import_module("ipusim.ipu.imports.hosted")  # import TensorFlow once, before forking a process per file
    files = files_of(checkout)
    rows = {file: list[Row]() for file in files}
    for row in read_rows() if OUTCOMES.exists() else ():
        rows[row.file].append(row)
    for file in files:
        if part in file:
            rows[file] = run_file(checkout, file)
            _write(row for entry in rows.values() for row in entry)
            print(f"{file}: {dict(Counter(row.outcome for row in rows[file]))}", flush=True)
    print(summary([row for entry in rows.values() for row in entry], files))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(f"python -m reports.graphcore_tests CHECKOUT [PART]: of graphcore/tensorflow at {COMMIT[:7]}")
    main(Path(sys.argv[1]).resolve(), *sys.argv[2:])
