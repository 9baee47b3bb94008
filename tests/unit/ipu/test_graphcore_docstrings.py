"""Graphcore's names say what they do here, and what they do not: what the page of names says, they say themselves."""

import inspect
import re

import pytest

from reports.graphcore_names import Name, names
from reports.graphcore_status import Status, said_of, said_of_arguments
from tests.programs import needs_tensorflow

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
    needs_tensorflow()
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
