"""The door of the simulator: what it offers, to whom, and what it costs to open it."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from ipusim import api
from tests.scenarios import ROOT

ROOMS = [name for name in api.__all__ if isinstance(getattr(api, name), ModuleType)]


def test_the_door_offers_what_it_says():
    assert len(api.__all__) <= 45, f"{len(api.__all__)} names in ipusim/api.py: offer a new one through its room"
    assert sorted(name for name in api.__all__ if not hasattr(api, name)) == []
    assert set(api.__all__) <= set(dir(api))
    with pytest.raises(AttributeError, match=r"^module 'ipusim\.api' has no attribute 'Requests'$"):
        _ = api.Requests


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_offers_what_it_says_and_all_of_it_is_used(room):
    module = getattr(api, room)
    assert sorted(name for name in module.__all__ if not hasattr(module, name)) == []
    assert set(module.__all__) <= set(dir(module))
    # A module of the name of something offered would take its place once it is imported by itself.
    modules = {path.stem for path in Path(module.__file__).parent.glob("*.py")}
    offered = [name for name in module.__all__ if name in modules]
    assert [name for name in offered if not isinstance(getattr(module, name), ModuleType)] == []
    used = {name for namespace, name in used_of_rooms() if namespace == room}
    assert sorted(set(module.__all__) ^ used) == [], (
        f"in {module.__file__}: take out names that app/ and ipu/ do not use, add those that they use"
    )


@cache
def used_of_rooms() -> set[tuple[str, str]]:
    """Return the room and the name of all that the application and Graphcore's API use of rooms."""
    paths = [path for user in ("app", "ipu") for path in (ROOT / "ipusim" / user).rglob("*.py")]
    texts = [text for path in paths if "ipusim.api" in (text := path.read_text())]
    return {used for text in texts for used in _used_in(text)}


def _used_in(text: str) -> Iterator[tuple[str, str]]:
    nodes = list(ast.walk(ast.parse(text)))
    rooms = {
        alias.asname or alias.name: alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == "ipusim.api"
        for alias in node.names
    }
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in rooms:
            yield rooms[node.value.id], node.attr


def test_to_open_the_door_imports_none_of_the_simulator():
    code = "import sys, ipusim.api; print(*(name for name in sys.modules if name.startswith(('ipusim.', 'numpy'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == ["ipusim.api", "ipusim.base", "ipusim.base.lazy", "ipusim.base.version"]
