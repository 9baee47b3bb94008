"""Public names say what they take, give and raise, and show it in an example."""

import ast
import re
from pkgutil import resolve_name

import pytest

from ipusim import api
from tests.docstrings import faults, has_example, methods, public, unknown_names
from tests.scenarios import ROOT

PUBLIC = public()
METHODS = methods()


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_says_what_it_takes_gives_and_raises(name):
    assert (faults(PUBLIC[name]), has_example(PUBLIC[name])) == ([], True), f"complete the docstring of {name}"


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_of_a_public_class_says_what_it_takes_gives_and_raises(name):
    assert faults(METHODS[name]) == [], f"complete the docstring of {name}"


@pytest.mark.parametrize("name", [name for name in api.__all__ if type(getattr(api, name)) is type(api)])
def test_a_room_says_what_it_offers(name):
    room = getattr(api, name)
    assert room.__doc__
    assert f"As ``{name}`` of :mod:`ipusim.api`" in room.__doc__ or not hasattr(room, "__path__")


def test_every_name_that_a_docstring_refers_to_is_there():
    lost = []
    for path in (ROOT / "ipusim").rglob("*.py"):
        for name in re.findall(r":\w+:`~?(ipusim[\w.]+)`", path.read_text("utf-8")):
            try:
                resolve_name(name)
            except (ImportError, AttributeError):
                owner, _, field = name.rpartition(".")
                if field not in getattr(resolve_name(owner), "__annotations__", ()):  # of a dataclass
                    lost.append((path.name, name))
    assert lost == [], "docstrings refer to names that do not exist"


def test_private_docstrings_name_parameters_and_attributes_that_exist():
    trees = {
        str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8")) for path in (ROOT / "ipusim").rglob("*.py")
    }
    assert unknown_names(trees) == [], "docstrings describe parameters or attributes that were renamed or removed"
