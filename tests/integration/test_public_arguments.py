"""Every public function takes what its signature says, and refuses all else in one message of bounded length."""

import inspect
import re
import shutil
from itertools import islice
from unittest import mock

import pytest

import ipusim
from ipusim.base.errors import IpusimError, bounded
from ipusim.runs.problems import show
from tests.effort import draws_everything, one_in, sampled
from tests.scenarios import SCENARIOS

FOUR = str(SCENARIOS / "schedules_four_ipus.yaml")
HOLDS_ITSELF: list = []
HOLDS_ITSELF.append(HOLDS_ITSELF)
MAPS_ITSELF: dict = {}
MAPS_ITSELF["system"] = MAPS_ITSELF


class Unspeakable:
    """A value that cannot be shown."""

    def __repr__(self):
        raise RuntimeError("no")


#: What fits hardly any parameter.
WRONG = {
    "None": None,
    "a number": 5,
    "a negative number": -1,
    "a large number": 10**5000,
    "a fraction": 0.5,
    "no number": float("nan"),
    "a text": "x",
    "a long text": "x" * 40_000,
    "no text": "\0\ud800",
    "braces": "{0} {",
    "bytes": b"x",
    "an empty list": [],
    "a list of numbers": [5],
    "a list of lists": [[5]],
    "a list that holds itself": HOLDS_ITSELF,
    "a mapping": {5: 5},
    "a mapping that holds itself": MAPS_ITSELF,
    "a truth value": True,
    "an object": object(),
    "an object that cannot be shown": Unspeakable(),
}
#: Values of the parameters that have no default.
NEEDED = {"source": FOUR, "sources": FOUR, "vary": {"steps": [1]}}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What the public functions return, by name, to call its methods."""
    folder = tmp_path_factory.mktemp("run")
    run = ipusim.run(FOUR)
    with mock.patch("matplotlib.figure.Figure.savefig"):  # which leaves pictures empty: nobody looks at them
        loaded = ipusim.load(run.save(folder))
    varied = ipusim.sweep(FOUR, {"steps": [1]}, workers=1)
    return {"run": run, "load": loaded, "compare": ipusim.compare([FOUR, folder]), "sweep": varied, "folder": folder}


def functions(shown):
    """Yield every public function and method that takes arguments, with those that it needs."""
    needed = {"load": {"folder": shown["folder"]}, "report": {"folders": shown["folder"]}, "request": {"options": {}}}
    for name in ("run", "compare", "sweep", "suggest", "load", "report", "request"):
        yield name, getattr(ipusim, name), needed.get(name, NEEDED)
    for name in ("run", "load", "compare", "sweep"):
        for method in ("figure", "memory_figure", "explain", "save"):
            if hasattr(shown[name], method):
                yield f"{name}.{method}", getattr(shown[name], method), {"folder": shown["folder"] / "saved"}


@pytest.mark.usefixtures("without_pictures")
def test_wrong_values_of_any_parameter_are_one_message(shown, tmp_path, monkeypatch):
    """One kind in three of each, by default in six, others of the next."""
    step = 3 if draws_everything() else 6

    def not_done(*_, **__):
        raise IpusimError("what fits is not done")

    works = (
        "notebook.run.execute",
        "suggest.suggestion.suggest",
        "compare.compare.compare",
        "explain.explanation.what_if",
    )
    for work in (*works, "sweep.sweep.sweep", "page.page.report_page"):
        monkeypatch.setattr(f"ipusim.app.{work}", not_done)
    monkeypatch.chdir(tmp_path)
    wrong = []
    for name, function, needed in functions(shown):
        parameters = inspect.signature(function).parameters
        known = {key: value for key, value in needed.items() if key in parameters}
        for number, parameter in enumerate(parameters):
            for kind, value in islice(WRONG.items(), *((None,) if draws_everything() else (number % step, None, step))):
                try:
                    function(**known | {parameter: value})
                except IpusimError as error:
                    if len(str(error)) > 2500:
                        wrong.append(f"{name}({parameter}={kind}): a message of {len(str(error))}")
                except Exception as error:
                    wrong.append(f"{name}({parameter}={kind}): {error!r:.100}")
    assert wrong == [], "\n".join(wrong)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ipusim.report([]), "expected at least one folder of a run, got none"),
        (lambda: ipusim.report([5]), "folders: expected a path, a text or a list of paths or texts, got [5]"),
        (lambda: ipusim.request([1]), "expected a mapping of options, got [1]"),
        (
            lambda: ipusim.request({"steps": 1}, steps=2),
            "steps: expected each option once, got an option a second time",
        ),
        (
            lambda: ipusim.sweep(FOUR, {"steps": [1]}, workers="x"),
            "workers: expected a whole number or None, got 'x'",
        ),
        (lambda: ipusim.suggest(FOUR, seconds="x"), "seconds: expected a number or None, got 'x'"),
        (lambda: ipusim.suggest(FOUR, replicas="x"), "replicas: expected whole numbers, got 'x'"),
        (lambda: ipusim.suggest(FOUR, replica=2), "did you mean replicas?"),
        (lambda: ipusim.request(MAPS_ITSELF), "system.system.system.system: expected at most 16 levels of mappings"),
        (
            lambda: ipusim.request(steps=10**5000),
            "steps: expected a number of ordinary length, got a whole number of thousands of digits",
        ),
    ],
)
def test_a_wrong_argument_is_named_with_what_would_be_right(call, text):
    with pytest.raises(IpusimError) as error:
        call()
    assert text in str(error.value)


@pytest.mark.parametrize("kind", WRONG)
def test_any_value_can_be_shown(kind):
    assert len(show(WRONG[kind])) <= 80


def every_error(kind=IpusimError):
    for each in kind.__subclasses__():
        yield each
        yield from every_error(each)


def test_what_messages_of_every_kind_quote_is_bounded():
    kinds = [each for each in every_error() if each.__init__ is IpusimError.__init__]
    assert len(kinds) > 8
    for kind in kinds:
        text = str(kind("a.yaml:1:2: key: expected this, got " + "x" * 40_000))
        assert len(text) < 1000
        assert text.startswith("a.yaml:1:2: key: expected this, got xxx")
    assert bounded("expected this, got that") == "expected this, got that"
    assert len(bounded("several words " * 4000)) < 4100
    assert bounded("line\n" * 5000).endswith("line\n... and 4,800 more lines")
    assert bounded("a\nb\x0bc\x1b[2J\u2028\ud800µ") == "a\nb\\x0bc\\x1b[2J\\u2028\\ud800µ"


@pytest.fixture
def folder(shown, tmp_path):
    shutil.copytree(shown["folder"], tmp_path / "run", ignore=shutil.ignore_patterns("saved"))
    return tmp_path / "run"


@sampled(2)
@pytest.mark.parametrize("value", ["1e999", "-Infinity", "NaN", "9" * 400, "9" * 5000, '"\\ud800"', "[]", "{}", "null"])
def test_a_damaged_summary_is_one_message_whatever_it_says_anywhere(folder, value):
    whole = (folder / "summary.json").read_text()
    harmless = value in ("[]", "{}", "null")  # in some places
    refused = 0
    places = [*re.finditer(r": ([^\[{\n]+?),?\n", whole)][:: (5 if harmless else 1) * one_in()]
    for match in places:
        (folder / "summary.json").write_text(whole[: match.start(1)] + value + whole[match.end(1) :])
        try:
            ipusim.report(folder)
        except IpusimError as error:
            refused += str(folder) in str(error) and len(str(error)) < 1000
        else:
            assert harmless
            refused += 1
    assert refused == len(places) > 3
