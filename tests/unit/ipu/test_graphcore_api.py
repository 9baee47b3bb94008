"""Every public name of Graphcore's references: signatures and defaults, what is refused, and which test uses it.

What the page of names says that they do and do not, their docstrings say themselves.
"""

import inspect
import re
from functools import cache

import numpy as np
import pytest

from reports.graphcore_names import Argument, Name, names
from reports.graphcore_page import graphcore_page
from reports.graphcore_status import EXCEPTIONS, Status, said_of, said_of_arguments
from tests.scenarios import ROOT

pytestmark = pytest.mark.usefixtures("tf")

#: Tests of wrong programs: a refused value does not say that another works.
MISUSE = ("misuse", "wrong_", "hostile", "texts", "graphcore_api")


def test_each_name_is_listed_once():
    paths = [name.path for name in names()]
    assert len(paths) == len(set(paths)) == 399
    assert {name.kind for name in names()} == {
        *("class", "function", "method", "property", "member", "attribute", "category", "alias")
    }


@pytest.mark.parametrize("name", names(), ids=lambda name: name.path)
def test_a_name_has_graphcores_signature_and_defaults(name):
    assert name.here is not None
    assert said_of(name).status is not Status.NOT_YET, said_of(name).why
    found = [argument for argument, said in said_of_arguments(name).items() if said.status is Status.NOT_YET]
    assert found == []


def test_a_difference_is_seen():
    """The check itself: of arguments, their order and defaults, of a type, and of the object behind an alias."""
    path = "ipu.optimizers.CrossReplicaOptimizer"
    assert Name("class", path, "(opt, name='CrossReplicaOptimizer')").differences() == {}
    assert Name("class", path, "(opt, name=None)").differences() == {"name": "by default 'CrossReplicaOptimizer'"}
    assert Name("class", path, "(opt, more, name='CrossReplicaOptimizer')").differences() == {
        "more": "not taken",
        "name": "by its name alone, as its place is another",
    }
    assert Name("class", path, "(opt='x', *args)").differences() == {"opt": "without a default", "*args": "not taken"}
    attribute = "ipu.config.IPUConfig.allow_recompute"
    assert Name("attribute", attribute, ": bool = True").differences() == {"": "here it is: bool = False"}
    other = Name("alias", "ipu.loops.repeat", " = ipu.optimizers.CrossReplicaOptimizer")
    assert said_of(other).why == "is another object"
    assert Name("function", "ipu.bogus.more", "()").here is None
    assert Name("function", "ipu.loops.more", "()").here is None
    assert Name("function", "a.b", "(x, *y, z=1, **w)").arguments == (
        Argument("x", None),
        Argument("*y", None),
        Argument("z", "1"),
        Argument("**w", None),
    )


def _pipeline(hosts):
    queue = hosts.ipu.ipu_infeed_queue.IPUInfeedQueue(hosts.tf.data.Dataset.from_tensors(np.ones(2, np.float32)))
    hosts.ipu.pipelining_ops.pipeline([lambda x: x, lambda x: x], 4, infeed_queue=queue, continuous_weight_updates=True)


def _exporting(module, kind, method):
    def call(hosts):
        def model(features, labels, mode):
            raise AssertionError

        estimator = getattr(getattr(hosts.ipu, module), kind)
        getattr(estimator(model, "model", hosts.ipu.ipu_run_config.RunConfig()), method)("folder", None)

    return call


#: What each refusal is the answer to.
CALLS = {
    **{
        f"ipu.{module}.{kind}.{method}": _exporting(module, kind, method)
        for module, kind in (("ipu_estimator", "IPUEstimator"), ("ipu_pipeline_estimator", "IPUPipelineEstimator"))
        for method in ("experimental_export_all_saved_models", "export_saved_model", "export_savedmodel")
    },
    "ipu.custom_ops.precompiled_user_op(gp_path)": lambda hosts: hosts.ipu.custom_ops.precompiled_user_op(
        [], "a.py", "a.gp"
    ),
    "ipu.ipu_infeed_queue.IPUInfeedQueue.get_next": lambda hosts: hosts.ipu.ipu_infeed_queue.IPUInfeedQueue(
        hosts.tf.data.Dataset.range(2)
    ).get_next(),
    "ipu.ipu_run_config.IPURunConfig(compile_summary)": lambda hosts: hosts.ipu.ipu_run_config.IPURunConfig(
        compile_summary=True
    ),
    "ipu.ipu_run_config.IPURunConfig(ordinal)": lambda hosts: hosts.ipu.ipu_run_config.IPURunConfig(ordinal=1),
    "ipu.pipelining_ops.pipeline(continuous_weight_updates)": _pipeline,
    "ipu.scopes.partials_type": lambda hosts: hosts.ipu.scopes.partials_type(np.float16).__enter__(),
}


def test_every_refusal_is_tried():
    assert set(CALLS) == {path for path, said in EXCEPTIONS.items() if said.status is Status.REFUSED}
    known = {name.path for name in names()} | {
        f"{name.path}({argument.name})" for name in names() for argument in name.arguments
    }
    assert set(EXCEPTIONS) <= known


@pytest.mark.parametrize("path", CALLS)
def test_a_refusal_has_the_text_of_the_page(path, names, refused):
    refused(Exception, EXCEPTIONS[path].why, lambda: CALLS[path](names))


def test_a_category_or_an_enumeration_without_any_effect_does_not_say_that_it_works():
    said = {name.path: said_of(name).status for name in names()}
    config = "ipu.config.IPUConfig."
    for path, status in said.items():
        below = {said[other] for other in said if path.startswith(config) and other.startswith(f"{path}.")}
        assert not (below == {Status.NO_EFFECT} and status is Status.WORKS), path
    for kind, attribute in (
        ("DeviceConnectionType", "device_connection.type"),
        ("MergeRemoteBuffersBehaviour", "optimizations.merge_remote_buffers"),
        ("SchedulingAlgorithm", "scheduling.algorithm"),
        ("SelectionOrder", "selection_order"),
    ):
        members = {said[path] for path in said if f"{path}.".startswith(f"ipu.config.{kind}.")}
        assert members == {said[f"{config}{attribute}"]}


def test_the_page_has_a_row_for_each_name():
    rows = [line for line in graphcore_page().splitlines() if line.startswith("| `")]
    assert len(rows) == len(names())
    assert not any("| not yet |" in row for row in rows)


@cache
def words():
    """The words of each file of tests that are not of misuse, and of each program of the repository."""
    files = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("tests/seeds/*"), *ROOT.glob("scenarios/python/*.py")]
    texts = [file.read_text() for file in files if file.is_file() and not any(each in file.name for each in MISUSE)]
    return [frozenset(re.findall(r"\w+", text)) for text in texts]


#: All but TensorFlow's own function, and what is another path or a group.
USED = [name for name in names() if name.kind not in ("alias", "category") and not name.path.endswith("tensor_summary")]


@pytest.mark.parametrize("name", USED, ids=lambda name: name.path)
def test_a_test_or_a_program_uses_each_name_and_optional_argument_that_works(name):
    if said_of(name).status is Status.WORKS:
        last = name.path.rpartition(".")[2]
        called = {last, last.removeprefix("Popnn")} if name.path.startswith("ipu.keras.") else {last}
        using = [found for found in words() if called & found]
        assert using
        said = said_of_arguments(name)
        optional = [each.name for each in name.arguments if each.default is not None]
        working = [each for each in optional if said[each].status is Status.WORKS]
        assert [each for each in working if not any(each in found for found in using)] == []


CALLED = [name for name in names() if name.kind in ("class", "function", "method", "property")]
_NOTHING = re.compile(r"without effect|no effect|do nothing|refuse|obsolete", re.I)
#: Where all arguments but those that it names have no effect.
_OTHERS = re.compile(r"Arguments other than (.*?) have\s+no effect", re.S)


def is_tensorflows(here: object) -> bool:
    """Whether a name is a function of TensorFlow or tf_keras, which has their docstring."""
    return not getattr(here.fget if isinstance(here, property) else here, "__module__", "").startswith("ipusim.")


def docstring(here: object) -> str:
    """Return what a name says: a class together with those that it is made of, and their constructors."""
    here = here.fget if isinstance(here, property) else getattr(here, "__func__", here)
    if not inspect.isclass(here):
        return inspect.unwrap(here).__doc__ or ""
    homes = [base for base in here.__mro__ if base.__module__.startswith("ipusim.ipu")]
    texts = [text for home in homes for text in (vars(home).get("__doc__"), _of_constructor(home)) if text]
    return "\n".join(text for text in texts if not re.match(r"\w+\(", text))  # that of a tuple's fields is made


def _of_constructor(home: type) -> str | None:
    return getattr(vars(home).get("__init__"), "__doc__", None)


def names_argument(text: str, argument: str) -> bool:
    """Whether a docstring names an argument, or says that all but some others have no effect."""
    others = _OTHERS.search(text)
    return re.search(rf"\b{argument}\b", text) is not None or (others is not None and argument not in others[1])


@pytest.mark.parametrize("name", CALLED, ids=lambda name: name.path)
def test_a_name_says_what_it_does_and_what_not(name: Name):
    if is_tensorflows(name.here):
        assert said_of(name).status is Status.WORKS
        return
    text = docstring(name.here)
    assert text.partition("\n")[0].strip()
    status = said_of(name).status
    assert status in (Status.WORKS, Status.NOT_YET) or _NOTHING.search(text)
    if status is Status.WORKS:
        # what operations are called is the same for all functions: the page of names says it once
        others = {argument: said for argument, said in said_of_arguments(name).items() if argument != "name"}
        silent = [argument for argument, said in others.items() if said.status is not Status.WORKS]
        assert [argument for argument in silent if not names_argument(text, argument.strip("*"))] == []
        assert not silent or _NOTHING.search(text)
