"""What every test finds: fixtures, the settings of Hypothesis, compiled modules kept, and the times of each folder.

Whoever only hands tests out to workers loads this too: it imports nothing that takes time before a test asks for it.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import effort
from tests.suite import forget_programs, link_libraries

if TYPE_CHECKING:
    from ipusim.timeline.timeline import Timeline
    from tests.trace_files import PerfettoReader

# What is imported and collected stays: to look for garbage in it, again and again, took a fifth of a test's time.
gc.disable()


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="draw more examples, and run the slowest tests too")
    parser.addoption("--every", action="store_true", help="draw all examples, and run the slowest tests too")
    parser.addoption("--share", default="1/1", help="run a share of the tests, such as 1/2, which 2/2 completes")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Hand whole folders out to a worker on each core, unless the command line says something else about it."""
    if hasattr(config, "workerinput") or not config.pluginmanager.has_plugin("xdist"):
        return  # a worker hands nothing on
    folders = all(Path(argument).is_dir() and Path(argument).name != "bench" for argument in config.args)
    if folders and config.option.numprocesses is None and config.option.dist == "no":
        config.option.numprocesses, config.option.dist = "auto", "worksteal"


def pytest_configure(config):
    """Keep compiled modules, also where the environment says not to beside their sources; and set up Hypothesis.

    Every worker, and each of the processes that tests start, else compiles all modules again: half of what it takes.
    """
    config.addinivalue_line("markers", "slowest: runs with --all alone")
    config.addinivalue_line("markers", "rarest: runs with --every alone")
    config.addinivalue_line("markers", "stable: a ratio of tests/bench that `python -m tests --all` measures")
    config.addinivalue_line("markers", "sampled(n): runs one in n of its cases, more with --all, all with --every")
    choice = effort.chosen(config.getoption("all"), config.getoption("every"))
    choice.__enter__()
    config.add_cleanup(lambda: choice.__exit__(None, None, None))
    if sys.dont_write_bytecode and hasattr(config, "cache"):
        sys.dont_write_bytecode, sys.pycache_prefix = False, str(config.cache.mkdir("bytecode"))
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
        link_libraries(Path(sys.pycache_prefix))
    if hasattr(config, "workerinput") or config.getoption("numprocesses", None) in (None, 0):
        import scipy.linalg  # noqa: F401, PLC0415
        from hypothesis import settings  # noqa: PLC0415
        from threadpoolctl import threadpool_limits  # noqa: PLC0415

        # Workers share the cores: threads of a BLAS would wait for each other. Processes that tests start have theirs.
        threadpool_limits(limits=1, user_api="blas")
        effort.draw_the_same_everywhere()
        # The same examples in every run, and no judgement of how long one takes: machines are shared.
        settings.register_profile("ipusim", deadline=None, derandomize=True, max_examples=effort.share(100))
        settings.load_profile("ipusim")


class Backwards(pytest.Dir):
    """A folder that is collected from its end."""

    def collect(self):
        return reversed([*super().collect()])


def pytest_collect_directory(path, parent):
    """Let every other worker begin at the end: each collects all tests, and finds half of the modules compiled."""
    worker = getattr(parent.config, "workerinput", {}).get("workerid", "gw0")
    return Backwards.from_parent(parent, path=path) if int(worker[2:]) % 2 else None


def pytest_collection_modifyitems(config, items):
    """Leave the slowest tests and what is beside a sample to ``--all``, the rarest to ``--every``; hand out files."""
    items.sort(key=lambda item: item.path)
    runs = {"slowest": effort.runs_slowest(), "rarest": effort.draws_everything()}
    here, left_out = [], []
    for item in items:
        if simulates_published(item):
            item.add_marker("slowest")
        rests = any(item.get_closest_marker(name) and not runs[name] for name in runs)
        (left_out if rests else here).append(item)
    beside = effort.beside_samples(here) | effort.outside_share(here, config.getoption("share"))
    left_out += beside
    here = [item for item in here if item not in beside]
    config.hook.pytest_deselected(items=left_out)
    items[:] = dealt(here, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def simulates_published(item: pytest.Item) -> bool:
    """Return whether a test has a fixture that simulates all published trainings, or schedules."""
    return not {"validate", "validate_schedules"}.isdisjoint(getattr(item, "fixturenames", ()))


def dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return tests in an order of which each worker gets its part: units, then as many files as the others.

    The parts that workers begin with are as long as each other, and who is done takes tests from the end of another's
    part. Files beside each other run the same programs and draw the same pictures, once in each worker. The browser's
    tests stand first: they wait for it while the checks of the code have that core. Then come units. What looks at all
    published trainings stands at the head of the first worker's files, so that no other simulates them again, for a
    minute.
    """
    items = sorted(items, key=lambda item: not simulates_published(item))
    first = ("tests/browser/", "tests/unit/")
    order, units = ([item for item in items if item.nodeid.startswith(folder)] for folder in first)
    rest = [item for item in items if not item.nodeid.startswith(first)]
    files = [[*tests] for _, tests in itertools.groupby(rest, lambda item: item.path)]
    for worker in range(workers):
        begin, end = (len(files) * part // workers for part in (worker, worker + 1))
        own = [*itertools.chain.from_iterable(files[begin:end])]
        missing = max(len(items) * (worker + 1) // workers - len(order) - len(own), 0)
        order.extend([*units[:missing], *own])
        del units[:missing]
    return order + units


def pytest_collection_finish():
    forget_programs()  # of models that modules of tests make: they count in the names of others
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


def pytest_runtest_teardown(item, nextitem):
    """Leave out of further collections what is still there after the last test of a file: modules, and what is cached.

    Each run that tests execute collects garbage before it writes its files, 350 times in all, among all objects of its
    worker.
    """
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def lock_step() -> Callable[..., Timeline]:
    """The builder of hand-made Timelines, :func:`tests.timelines.timeline_by_hand`."""
    from tests.timelines import timeline_by_hand  # noqa: PLC0415

    return timeline_by_hand


@pytest.fixture
def tf():
    """TensorFlow; where it is not installed the test skips, or fails where it is required."""
    from tests.programs import tensorflow  # noqa: PLC0415

    return tensorflow()


@pytest.fixture
def names():
    """TensorFlow 1 and Graphcore's package, with a graph and no device of before."""
    from tests.programs import hosted_names  # noqa: PLC0415

    with hosted_names() as found:
        yield found


@pytest.fixture
def load(tmp_path):
    """Resolve the text of a scenario, with changes: ``load(text, "steps=2")``."""
    from ipusim.app.scenario import load_job  # noqa: PLC0415

    def of(text, *overrides):
        path = tmp_path / "scenario.yaml"
        path.write_text(text)
        return load_job(path, overrides)

    return of


@pytest.fixture
def own(request, tmp_path):
    """Write a file of one's own, which is called what the module's ``OWN`` says; return its path."""

    def write(content, name=""):
        path = tmp_path / (name or request.module.OWN)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def refused():
    """Return a check that an action raises an error of ours, of the builtin type ``kind``, with exactly ``text``."""
    from ipusim.base.errors import IpusimError  # noqa: PLC0415

    def check(kind, text, action):
        with pytest.raises(kind) as caught:
            action()
        assert isinstance(caught.value, IpusimError)
        assert str(caught.value) == text

    return check


@pytest.fixture(scope="session")
def read_perfetto() -> Callable[[bytes], PerfettoReader]:
    """The reader of Perfetto traces."""
    from tests.trace_files import PerfettoReader  # noqa: PLC0415

    return PerfettoReader


@pytest.fixture
def without_pictures(monkeypatch):
    """Leave the files of pictures empty, whose figures are laid out all the same.

    For tests of what is said: more than half of their time went into pictures that none of them looks at.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415

    monkeypatch.setattr(Figure, "savefig", lambda *_, **_options: None)


@pytest.fixture(scope="module")
def coarse():
    """Draw a fifth of the pixels each way, for a module that counts none: most of the time went into them."""
    from ipusim.app.render import figures  # noqa: PLC0415

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "DPI", 36)
        yield


def pytest_terminal_summary(terminalreporter):
    """Print what the tests of each folder took: seconds of all workers together, and of a clock."""
    seconds, workers, began, ended = Counter(), set(), [], []
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("/")[2].partition("/")[0]] += report.duration
            workers.add(getattr(report, "node", None))
            began.append(report.start)
            ended.append(report.stop)
    terminalreporter.section("seconds of tests")
    for folder, taken in seconds.most_common():
        terminalreporter.write_line(f"{folder:12}{taken:8.1f}  {taken / len(workers):7.1f} over {len(workers)} workers")
    if began:
        terminalreporter.write_line(
            f"{'all':12}{seconds.total():8.1f}  {max(ended) - min(began):7.1f} from first to last"
        )


@pytest.fixture(scope="session", autouse=True)
def cores_of_its_own():
    """Let what runs in a worker's own process see that worker's share of the cores, as other workers use the rest.

    Each training else began a process that simulated it again and drew its pictures beside its arithmetic, and each
    sweep began workers of its own. Tests of that say how many cores there are.
    """
    if not hasattr(os, "sched_getaffinity"):
        yield
        return
    cores = sorted(os.sched_getaffinity(0))
    share = max(len(cores) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _: {*cores[:share]})
        yield


@pytest.fixture(scope="session", autouse=True)
def read_and_drawn_once():
    """Keep texts of scenarios and samples that tests have in common: see :mod:`tests.shared_inputs`."""
    from tests.shared_inputs import remembered  # noqa: PLC0415

    with remembered():
        yield


@pytest.fixture(autouse=True)
def nothing_of_other_tests():
    """Forget what programs have left: their configuration, which threads would find, seed, and variables by name."""
    yield
    forget_programs()
