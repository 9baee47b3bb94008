"""Drawn runs of pipelines as profilers write them: read right, or refused for a reason that they have."""

import tempfile
from collections import Counter
from pathlib import Path

from ipusim.app.profiles.read import read_measured
from ipusim.app.profiles.stages import stages_of
from ipusim.base.errors import FileError, OptionError
from tests.drawn_profiles import drawn, write
from tests.effort import draws_everything

DRAWS = 5000 if draws_everything() else 500


def outcome(seed: int) -> str:
    """Return how the run of a seed is read: right, refused or wrong, with its form and the message."""
    found = drawn(seed)
    with tempfile.TemporaryDirectory() as folder:
        try:
            stages = stages_of(read_measured(write(found, Path(folder)), found.names), found.stages)
        except (FileError, OptionError) as error:
            # Replicas in one file without names of processes may be in order or not.
            reasons = [found.reason] if found.reason else [] if found.right else ["the order of ranks was assumed"]
            right = next((reason for reason in reasons if reason in str(error)), None)
            return f"refused: {right}" if right else f"wrong: {seed}, {found.form}: refused: {error}"
    medians = [tuple(figure.median for figure in figures.values()) for figures in stages.stages.values()]
    if not found.right and not found.reason:
        return "said: " + stages.sources[0][4].partition(";")[0]
    if found.reason or medians != found.right or stages.count != found.count:
        return f"wrong: {seed}, {found.form}: {medians}, {stages.count}; {found.right}, {found.count}; {found.reason}"
    return "right"


def test_none_is_wrong_in_silence_and_most_are_read_right():
    """Refused are contradictions, missing ranks and facts, and forms without a reader alone."""
    outcomes = [outcome(seed) for seed in range(DRAWS)]
    assert [each for each in outcomes if each.startswith("wrong")] == []
    counted = Counter(outcomes)
    assert counted["right"] >= 0.8 * DRAWS, counted
