"""The examples in docstrings run and give what they say; those of public names need nothing around them."""

import ast
import doctest
import importlib
import inspect
import re

import pytest

from ipusim.schedules import registry
from tests.docstrings import public, sections
from tests.programs import needs_tensorflow
from tests.scenarios import ROOT

PUBLIC = public()
_PROMPT = re.compile(r"^\s*>>> ", re.M)
#: How many examples stand in the docstrings of each module that has any.
EXAMPLES = {
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__"): count
    for path in sorted((ROOT / "ipusim").rglob("*.py"))
    if (count := len(_PROMPT.findall(path.read_text())))
}


#: Names of the docstrings of public names, as a finder of examples gives them.
_PUBLIC_DOCSTRINGS = {f"{thing.__module__}.{thing.__name__}" for thing in PUBLIC.values()}


@pytest.mark.parametrize("module", EXAMPLES)
def test_the_examples_of_a_module_run(module):
    """Those of public names are counted here and run below; each is a program of its own to ``ipusim.ipu``."""
    as_program = {"__name__": "__main__", "__file__": None}
    tests = doctest.DocTestFinder().find(importlib.import_module(module), module, extraglobs=as_program)
    if any("tensorflow" in example.source for test in tests for example in test.examples):
        needs_tensorflow()
    runner = doctest.DocTestRunner()
    found = sum(len(test.examples) for test in tests)
    assert found == EXAMPLES[module], (
        f"{module}: doctest finds {found} of {EXAMPLES[module]} examples; the others never run"
    )
    with registry.temporarily():
        assert [test.name for test in tests if test.name not in _PUBLIC_DOCSTRINGS and runner.run(test).failed] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_the_example_of_a_public_name_needs_nothing_around_it_and_shows_the_name(name):
    """A function is called in it; a class is named, or an object of it is there behind it."""
    thing, text = PUBLIC[name], inspect.cleandoc(PUBLIC[name].__doc__ or "")
    test = doctest.DocTestParser().get_doctest(sections(text)["Example"], {}, name, None, None)
    with registry.temporarily():
        failed, _ = doctest.DocTestRunner().run(test, clear_globs=False)
    assert failed == 0
    nodes = ast.walk(ast.parse("".join(example.source for example in test.examples)))
    words = {getattr(node, "attr", None) or getattr(node, "id", None) for node in nodes}
    objects = [value for value in test.globs.values() if inspect.isclass(thing) and isinstance(value, thing)]
    assert thing.__name__ in words or objects
