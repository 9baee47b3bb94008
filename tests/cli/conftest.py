"""A folder as the repository's top is, for commands that name scenarios and write results."""

from __future__ import annotations

import pytest

from tests.cli.pages import ROOT


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    return tmp_path
