"""What is wrong with an option, said by those who know it, in the words of whoever asked."""

import pickle
import re

import pytest

from ipusim.app.cli.shape import plan_for
from ipusim.app.render.window import ShownPart
from ipusim.app.run_folder.report_options import check_picture
from ipusim.base.errors import OptionError
from tests.scenarios import ROOT


def test_options_have_their_own_names_until_a_door_has_another_word():
    with pytest.raises(OptionError) as found:
        check_picture(2, ShownPart(start=7, end=7))
    assert str(found.value) == "start: expected a cycle before end 7, got 7"
    assert found.value.worded(lambda name: f"<{name}>") == "<start>: expected a cycle before <end> 7, got 7"
    assert str(pickle.loads(pickle.dumps(found.value))) == str(found.value)


def test_what_was_given_stands_in_the_message_whatever_it_is():
    with pytest.raises(OptionError, match=r"^phase: expected ramp-up, .*, got '\{\}\{0\}'$"):
        check_picture(2, ShownPart(phase="{}{0}"))
    with pytest.raises(OptionError, match=r"^mapping: expected IPUs below 256, .* got '\{\}'$"):
        plan_for("grouped", None, None, "{}", False, False)


def test_no_flag_of_the_command_line_stands_outside_of_it():
    flags = re.compile(r"--(from|to|phase|execution|out|count|mapping|stages)\b")
    holding = {path.parent.name for path in (ROOT / "ipusim").rglob("*.py") if flags.search(path.read_text("utf-8"))}
    assert holding == {"cli"}
