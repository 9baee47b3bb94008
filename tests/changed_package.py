"""The package with changes that tests make to it, to see what an addition costs and what follows from it."""

from __future__ import annotations

from pathlib import Path

from tests.interpreter import Interpreter
from tests.places import ROOT

#: Takes a module from the folder that is named if it is there, and else, compiled, from the package itself.
FINDER = """
import sys
from importlib.util import spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

def changed(name, *_):
    path = Path({place!r}, *name.split(".")).with_suffix(".py")
    return spec_from_file_location(name, path) if path.exists() else None

sys.meta_path.insert(0, SimpleNamespace(find_spec=changed))
"""


class ChangedPackage:
    """The package of which some modules have another text, or are new; they lie in a folder, and the others do not.

    Args:
        place: the folder, in which ``ipusim`` has the modules.
    """

    def __init__(self, place: Path) -> None:
        self.place = place

    def write(self, file: str, text: str) -> None:
        """Give a module a text."""
        path = self.place / "ipusim" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def read(self, file: str) -> str:
        """Return the text of a module, with its changes."""
        path = self.place / "ipusim" / file
        return (path if path.exists() else ROOT / "ipusim" / file).read_text("utf-8")

    def put(self, file: str, anchor: str, text: str) -> None:
        """Put ``text`` in place of ``anchor``, which stands in the module once."""
        whole = self.read(file)
        assert whole.count(anchor) == 1, (file, anchor)
        self.write(file, whole.replace(anchor, text))

    def add(self, file: str, text: str) -> None:
        """Write ``text`` below what a module has."""
        self.write(file, self.read(file) + text)

    def leave_pictures_out(self) -> None:
        """Draw no pictures of runs, which takes longer than they do: for tests that look at none."""
        text = "picture_makers = lambda *_: []\npictures_of = lambda *_, **_options: {}\n"
        self.write("app/run_folder/pictures.py", text)

    def python(self) -> Interpreter:
        """Return a Python that has the changes."""
        return Interpreter(FINDER.format(place=str(self.place)), PYTHONPATH=str(ROOT))
