"""Messages: what they show of long values, and how long they are at most."""

import numpy as np
import pytest

from ipusim.api import Request, assemble
from ipusim.base.errors import FileError, IpusimError, PlanError
from ipusim.pipeline.order import Order
from ipusim.schedules.registry import register, temporarily
from ipusim.schedules.schedule import Schedule


@pytest.mark.parametrize(
    "text",
    [
        "x" * 30_000,
        " ".join(["word"] * 6000),
        "\n".join(["a line of the input"] * 3000),
        "\n".join(["y" * 5000] * 9),
        "begin\n" + "z " * 40_000 + "\nend",
        "\x1b[31m" * 5000,
    ],
    ids=["a word", "words", "lines", "long lines", "a long line", "escapes"],
)
def test_a_message_of_one_problem_is_short_whatever_it_quotes(text):
    said = str(FileError(f"place: expected this, got {text}"))
    assert said.startswith("place: expected this, got ")
    assert len(said) <= 3100
    assert "[... " in said


def test_a_short_message_stays_as_it_is():
    text = "\n".join(f"line {number}: expected a thing, got another" for number in range(40))
    assert str(PlanError(text)) == text


def test_python_s_words_for_too_many_digits_are_ours():
    with pytest.raises(ValueError, match="Exceeds the limit") as python_s:
        int("9" * 5000)
    said = str(IpusimError(f"a.py:1: ValueError: {python_s.value}"))
    assert said == "a.py:1: ValueError: expected whole numbers of at most 4300 digits, got one of more"


@pytest.mark.parametrize("sync", ["lock_step", "point_to_point"])
@pytest.mark.parametrize("stages", [2, 32, 64])
def test_a_wrong_order_of_many_ipus_is_told_within_a_page_with_its_mark(stages, sync):
    def order(shape):
        table = np.array([(n, 0, n, m) for n in range(stages) for m in reversed(range(shape.micro_batches))])
        return Order("mine", shape, table=table)

    listed = [{"name": f"s{n}", "forward": 10, "backward": 20} for n in range(stages)]
    pipeline = {"schedule": "mine", "sync": sync, "gradient_accumulation_count": 200, "stages": listed}
    with temporarily():
        register(Schedule("mine", order, lambda _: 1, True, "mine"))
        with pytest.raises(PlanError) as refused:
            assemble(Request.from_dict({"system": {"name": "free"}, "pipeline": pipeline}))
    assert "the plan breaks rules" in str(refused.value)
    assert len(str(refused.value)) <= 3100
