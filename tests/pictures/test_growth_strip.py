"""Colours beside the bars of IPUs tell the growth of a run per cycle of each pass."""

import numpy as np
import pytest

from ipusim.app.explain.explanation import explain
from ipusim.app.render.idle_causes import idle_chart
from ipusim.app.render.picture import Picture
from ipusim.app.render.style import luminance
from ipusim.app.scenario.load import load_job
from ipusim.runs.session import Session
from tests.scenarios import SCENARIOS

FOUR = SCENARIOS / "schedules_four_ipus.yaml"


@pytest.fixture(scope="module")
def explanation():
    job = load_job(FOUR, ("pipeline.stages.stage1.forward=1600",))
    return explain(Session(job).run(job.executions), job)


def strips(figure):
    """Return the axes of the cells, and of the scale."""
    return [axes for axes in figure.axes if axes.images]


def test_each_cell_has_the_growth_of_its_ipu_as_number_and_colour(explanation):
    cells, scale = strips(explanation.charts()["idle_causes"]())
    names = [label.get_text() for label in cells.get_xticklabels()]
    assert names == [kind.name.lower() for kind in explanation.sensitivities.grows]
    stages_of = explanation.timeline.info.stages_of_ipu
    expected = np.array(
        [[max(cycles[stage] for stage in stages) for cycles in explanation.sensitivities.grows.values()]
         for _, stages in sorted(stages_of.items())]
    )  # fmt: skip
    written = [int(text.get_text().replace(",", "")) for text in cells.texts]
    assert written == expected.ravel().tolist()
    image = cells.images[0]
    colours = image.to_rgba(image.get_array(), bytes=True)[..., :3].reshape(-1, 3).tolist()
    shades = [luminance("#{:02x}{:02x}{:02x}".format(*colour)) for colour in colours]
    order = np.argsort(expected.ravel(), kind="stable")
    assert len({*written}) > 1
    assert (np.diff(np.array(shades)[order]) >= -1e-9).all()
    assert [label.get_text() for label in scale.get_yticklabels()] == [f"{max(written):,}", "0"]


def test_unknown_growth_and_narrow_pictures_have_no_strip(explanation):
    growth = {"forward": [1, None, 3, 4]}
    arguments = explanation.timeline, explanation.ipu_time
    cells, _ = strips(idle_chart(*arguments, growth=growth))
    assert [text.get_text() for text in cells.texts] == ["1", "-", "3", "4"]
    assert not strips(idle_chart(*arguments))
    assert not strips(idle_chart(*arguments, growth={"forward": [None] * 4}))
    assert not strips(idle_chart(*arguments, Picture(size="4x4in"), growth=growth))
