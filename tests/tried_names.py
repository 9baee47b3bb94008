"""Which test tries what the page of Graphcore's API says works, and that it fails where that is taken away.

``tests/tried_names.csv`` names a test for each name and each optional argument. Taken away is, while the test runs
once more: of a function, class, method or property its result; of an argument its value, for the default; of an
attribute of the configuration what is assigned to it; of a member of an enumeration the member, for another one. It is
taken away from the object itself that stands at the path, wherever the test has it from, so that another of that name
counts for nothing. ``python -m tests.tried_names`` looks for tests of those that have none, and writes the table again.
"""

from __future__ import annotations

import csv
import inspect
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from enum import EnumType
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol

import ipusim
from ipusim.ipu.runtime.attributes import Category
from reports.graphcore_names import CONFIG, Name, names
from reports.graphcore_status import Status, said_of, said_of_arguments
from tests.places import ROOT

TABLE: Final = Path(__file__).with_suffix(".csv")
_PACKAGE: Final = str(Path(ipusim.__file__).parent)
#: The file of the code that stands for a function's own.
_CALLED: Final = f"{_PACKAGE}/called.py"
#: Tests of what programs do wrong: that a value is refused does not say that another works.
_MISUSE: Final = (
    *("misuse", "wrong_", "hostile", "texts", "graphcore_api", "rules.py", "tried_names", "refused", "cannot"),
    *("no_effect", "positions_are", "keras_saving", "public_arguments"),
)
#: How many tests are tried for each, the fastest first, and for how long.
_CANDIDATES: Final = 4
_SECONDS: Final = 8.0


class TakenAwayError(Exception):
    """What is raised instead of a result."""


@cache
def wanted() -> dict[str, Name]:
    """Return the names and optional arguments that work, ``path`` or ``path(argument)``, each with its name."""
    found = {}
    for name in names():
        if said_of(name).status is Status.WORKS and name.kind not in ("alias", "category"):
            if isinstance(name.here, EnumType):
                continue  # its members are tried
            found[name.path] = name
            found |= {
                f"{name.path}({argument.name})": name
                for argument in name.arguments
                if (argument.default is not None or argument.name.startswith("*"))
                and said_of_arguments(name)[argument.name].status is Status.WORKS
            }
    return found


def in_table() -> dict[str, str]:
    """Return the test of each name and argument."""
    with TABLE.open(newline="") as file:
        return {row["name"]: row["test"] for row in csv.DictReader(file)}


def without_test(table: dict[str, str]) -> list[str]:
    """Return what no test of a table tries: of names, those of which no argument is tried either."""
    names_tried = {key.partition("(")[0] for key in table}
    return [key for key in wanted() if key not in table and ("(" in key or key not in names_tried)]


#: Who is told of each result and each value that is not the default: with the key, it returns True to take it away.
Watch = Callable[[str], bool]


def _from_outside() -> bool:
    """Return whether what is called is not called by the package itself."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename in (__file__, _CALLED):
        frame = frame.f_back  # type: ignore[assignment]
    return not frame.f_code.co_filename.startswith(_PACKAGE)


def _same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    try:
        return type(value) is type(default) and bool(value == default)
    except Exception:  # arrays have no truth
        return False


def _code(hook: Callable[..., Any], free: int) -> CodeType:
    """Return code that calls ``hook`` with what it is called with, and has as many free variables."""
    variables = ", ".join(f"v{place}" for place in range(free))
    text = f"def outer({variables}):\n def call(*args, **kwargs):\n  way = 'hook'\n  return way(*args, **kwargs)\n"
    text += f"  {variables}\n"
    outer = next(each for each in compile(text, _CALLED, "exec").co_consts if inspect.iscode(each))
    code = next(each for each in outer.co_consts if inspect.iscode(each))
    return code.replace(co_consts=tuple(hook if each == "hook" else each for each in code.co_consts))


@contextmanager
def _called_through(function: FunctionType, hook: Callable[..., Any]) -> Iterator[None]:
    """Have each call of a function, by whatever name, go to ``hook``, with the function as it was before it."""
    code, signature = function.__code__, inspect.signature(function)
    before = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    before.__kwdefaults__ = function.__kwdefaults__
    had = function.__dict__.get("__signature__")
    function.__code__ = _code(lambda *args, **kwargs: hook(before, signature, args, kwargs), len(code.co_freevars))
    function.__signature__ = signature  # type: ignore[attr-defined]
    try:
        yield
    finally:
        function.__code__ = code
        del function.__signature__  # type: ignore[attr-defined]
        if had is not None:
            function.__signature__ = had  # type: ignore[attr-defined]


def _watched_call(name: Name, of: type | None, keys: frozenset[str], watch: Watch) -> Callable[..., Any]:
    """Return the hook of the calls of a name, which are those of objects of the class ``of`` where there is one."""
    stars = {f"{name.path}({each.name})" for each in name.arguments if each.name.startswith("*")} & keys

    def counts(args: tuple[Any, ...]) -> bool:
        if of is None:
            return _from_outside()
        if not args or not isinstance(args[0], of):
            return inspect.isclass(args[0]) if args else False
        return True

    def call(before: Callable[..., Any], signature: inspect.Signature, args: Any, kwargs: Any) -> Any:
        if not counts(args):
            return before(*args, **kwargs)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return before(*args, **kwargs)
        told = [
            (f"{name.path}({key})", key)
            for key, value in bound.arguments.items()
            if not _same(value, signature.parameters[key].default) and f"{name.path}({key})" in keys
        ]
        kinds = {signature.parameters[key].kind: key for key in bound.arguments}
        for star in stars:
            kind = inspect.Parameter.VAR_KEYWORD if "**" in star else inspect.Parameter.VAR_POSITIONAL
            if bound.arguments.get(kinds.get(kind, "")):
                told.append((star, kinds[kind]))
        return _call(before, bound, told, name.path if name.path in keys else None)

    def _call(before: Callable[..., Any], bound: inspect.BoundArguments, told: Any, path: str | None) -> Any:
        if isinstance(watch, Taking):
            for key, argument in told:
                if watch(key):
                    del bound.arguments[argument]
        result = before(*bound.args, **bound.kwargs)
        if not isinstance(watch, Taking):
            for key, _ in told:
                watch(key)
        if path is not None and watch(path):
            raise TakenAwayError(path)
        return result

    return call


class Taking:
    """Takes one key away."""

    def __init__(self, key: str) -> None:
        """Take ``key`` away."""
        self.key = key

    def __call__(self, key: str) -> bool:
        """Return whether to."""
        return key == self.key


class _Member:
    """A member of an enumeration, as its class has it."""

    def __init__(self, key: str, member: Any, watch: Watch) -> None:
        self.key, self.member, self.watch = key, member, watch
        others = [each for each in type(member) if each is not member]
        self.other = others[-1]

    def __get__(self, _instance: Any, _kind: Any = None) -> Any:
        if _from_outside() and self.watch(self.key):
            return self.other
        return self.member


@contextmanager
def _watched_member(key: str, kind: EnumType, watch: Watch) -> Iterator[None]:
    last = key.rpartition(".")[2]
    had = kind.__dict__.get(last)
    member = kind[last]
    type.__setattr__(kind, last, _Member(key, member, watch))
    try:
        yield
    finally:
        if had is None:
            type.__delattr__(kind, last)
        else:
            type.__setattr__(kind, last, had)


def _watched_attributes(keys: Iterable[str], watch: Watch) -> Any:
    """Have what is assigned to attributes of a configuration seen."""

    def hook(before: Callable[..., Any], _signature: Any, args: Any, kwargs: Any) -> Any:
        place, attribute, value = args
        key = f"{CONFIG}{place._path}{attribute}"
        if key not in keys or not _from_outside() or _same(value, getattr(place._fields[attribute], "default", None)):
            return before(*args, **kwargs)
        if isinstance(watch, Taking):
            return None if watch(key) else before(*args, **kwargs)
        before(*args, **kwargs)
        watch(key)
        return None

    return _called_through(Category.__setattr__, hook)


def _function_of(name: Name) -> tuple[FunctionType, type | None]:
    """Return the function that is called where a name is, and the class whose objects it is called on."""
    here = name.here
    if inspect.isclass(here):
        made = here.__init__ if isinstance(here.__init__, FunctionType) else here.__new__
        return made, here
    if name.kind in ("method", "property"):
        from reports.graphcore_names import _found  # noqa: PLC0415

        above = "ipusim.ipu.tensorflow." if name.path.startswith("keras.") else "ipusim."
        kind = _found(above + name.path.rpartition(".")[0])
        here = here.fget if isinstance(here, property) else getattr(here, "__func__", here)
        return here, kind
    return here, None


@contextmanager
def watched(keys: Iterable[str], watch: Watch) -> Iterator[None]:
    """Have ``watch`` told of each of the keys, where it happens."""
    known = wanted()
    of_name: dict[str, set[str]] = defaultdict(set)
    for key in keys:
        of_name[known[key].path].add(key)
    by_function: dict[FunctionType, list[tuple[Name, type | None, frozenset[str]]]] = defaultdict(list)
    with ExitStack() as stack:
        attributes = set()
        for path, its in of_name.items():
            name = known[path] if path in known else next(known[key] for key in its)
            if name.kind == "attribute":
                attributes.add(path)
            elif name.kind == "member":
                stack.enter_context(_watched_member(path, type(name.here), watch))
            elif not isinstance(name.here, EnumType):
                function, kind = _function_of(name)
                by_function[function].append((name, kind, frozenset(its)))
        if attributes:
            stack.enter_context(_watched_attributes(attributes, watch))
        for function, several in by_function.items():
            for name, kind, its in several:
                stack.enter_context(_called_through(function, _watched_call(name, kind, its, watch)))
        yield


class Recorder:
    """Keeps what tests that pass do, with how long they take."""

    def __init__(self, keys: Iterable[str]) -> None:
        """Look for ``keys``."""
        self.keys, self.seen = list(keys), set[str]()
        self.found: dict[str, list[tuple[float, str]]] = defaultdict(list)
        self._watching = ExitStack()

    def __call__(self, key: str) -> bool:
        """Take a key down."""
        self.seen.add(key)
        return False

    def pytest_sessionstart(self) -> None:
        """Begin to look."""
        self._watching.enter_context(watched(self.keys, self))

    def pytest_runtest_setup(self) -> None:
        """Begin anew with each test."""
        self.seen.clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a test that passes did."""
        if report.when == "call" and report.passed and not any(each in report.nodeid for each in _MISUSE):
            for key in self.seen:
                self.found[key].append((report.duration, report.nodeid))

    def pytest_sessionfinish(self) -> None:
        """Look no more."""
        self._watching.close()


class Sabotage:
    """Runs tests once for each thing that they try, which is taken away; keeps what is not missed."""

    def __init__(self, test_of: dict[str, str], limit: float = 0) -> None:
        """Take the test of each key; one that goes on for more seconds than the limit, if any, misses nothing."""
        self.keys_of: dict[str, list[str]] = defaultdict(list)
        for key, test in test_of.items():
            self.keys_of[test].append(key)
        self.not_missed, self.limit = set(test_of), limit

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave other tests out."""
        items[:] = [item for item in items if item.nodeid in self.keys_of]

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test for each of its keys."""
        for key in self.keys_of[item.nodeid]:
            with watched([key], Taking(key)), _no_longer_than(self.limit) as in_time:
                reports = runtestprotocol(item, log=False, nextitem=nextitem)
            if in_time and any(report.failed for report in reports if report.when == "call"):
                self.not_missed.discard(key)
        return True

    def run(self) -> None:
        """Run them."""
        run_tests(sorted({test.partition("::")[0] for test in self.keys_of}), self)


@contextmanager
def _no_longer_than(limit: float) -> Iterator[list[str]]:
    """Interrupt a block after so many seconds; what is yielded is empty then."""
    in_time = ["in time"]

    def interrupt(*_: object) -> None:
        in_time.clear()
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, interrupt) if limit else None
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield in_time
    finally:
        if limit:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def run_tests(paths: Iterable[str], plugin: object) -> None:
    """Run the tests of files or folders in this process, with a plugin."""
    options = ("-q", "-n", "0", "--all", "-p", "no:cacheprovider", "--tb=no", "--no-header")
    rewritten = "ignore::pytest.PytestAssertRewriteWarning"  # modules that are imported already are not
    pytest.main([*options, "-W", rewritten, f"--rootdir={ROOT}", *(str(ROOT / path) for path in paths)], [plugin])


def main(paths: list[str]) -> int:
    """Look in tests for those of what has none, and write the table; return 0 when nothing is left without."""
    table = {key: test for key, test in in_table().items() if key in wanted()}
    recorder = Recorder(without_test(table))
    run_tests(paths or ["tests/unit", "tests/integration", "tests/oracles"], recorder)
    for place in range(_CANDIDATES):
        tests = {key: sorted(recorder.found[key])[place:][:1] for key in without_test(table)}
        tries = Sabotage({key: found[0][1] for key, found in tests.items() if found}, _SECONDS)
        tries.run()
        table |= {key: found[0][1] for key, found in tests.items() if found and key not in tries.not_missed}
    with TABLE.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("name", "test"))
        rows.writerows((key, table[key]) for key in wanted() if key in table)
    print("without a test:", *without_test(table), sep="\n")
    return 1 if without_test(table) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
