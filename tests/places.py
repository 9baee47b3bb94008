"""Where the files of the repository lie, wherever a test does."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
SCENARIOS = ROOT / "scenarios"
GOLDEN = ROOT / "tests" / "golden"
