"""Of a house's schedule the Plan of one count stands for those of all; what only has its name is checked each time."""

import pytest

from ipusim.base.cache import Cache
from ipusim.base.errors import PlanError
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.request.request import Request

#: GPipe's order, which forgets a pass where there are more than two micro-batches.
FORGETFUL = """
from ipusim.pipeline.order import Order

def gpipe(shape):
    passes = {
        ipu: [f"{kind}{stage}.{micro_batch}" for kind in "FB" for micro_batch in range(shape.micro_batches)]
        for stage, ipu in enumerate(shape.mapping)
    }
    kept = {ipu: each[: len(each) - (shape.micro_batches > 2)] for ipu, each in passes.items()}
    return Order.from_passes("gpipe", shape, kept)
"""


def test_a_schedule_of_ones_own_by_the_name_of_one_of_the_house_is_checked_at_every_count(tmp_path):
    (tmp_path / "mine.py").write_text(FORGETFUL)
    stages = [{"name": f"s{number}", "forward": 100, "backward": 200} for number in range(2)]
    cache = Cache()

    def laid_out(schedule, count):
        pipeline = {"schedule": schedule, "gradient_accumulation_count": count, "stages": stages}
        with cache.activate():
            return assemble(Request.from_dict({"system": {"name": "free"}, "pipeline": pipeline}, folder=tmp_path))

    for schedule in ("gpipe", "mine.py:gpipe"):
        assert laid_out(schedule, 2).schedule.name == "gpipe"
    assert laid_out("gpipe", 4).schedule.name == "gpipe"
    with pytest.raises(PlanError, match=r"^pipeline\.schedule: mine\.py:gpipe: the plan breaks rule"):
        laid_out("mine.py:gpipe", 4)
