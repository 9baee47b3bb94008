"""Copies of the package that tests change, to see what an addition costs and what follows from it."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.places import ROOT


def copy_package(place: Path) -> Path:
    """Copy the package into a folder, and return where it is there."""
    return Path(shutil.copytree(ROOT / "ipusim", place / "ipusim", ignore=shutil.ignore_patterns("__pycache__")))


def put(path: Path, anchor: str, text: str) -> None:
    """Put ``text`` in place of ``anchor``, which stands in the file once."""
    whole = path.read_text("utf-8")
    assert whole.count(anchor) == 1, (path, anchor)
    path.write_text(whole.replace(anchor, text), "utf-8")


def leave_pictures_out(package: Path) -> None:
    """Let a copy draw no pictures of runs, which takes longer than they do: for tests that look at none."""
    pictures = package / "app" / "run_folder" / "pictures.py"
    pictures.write_text("picture_makers = lambda *_: []\npictures_of = lambda *_, **_options: {}\n", "utf-8")
