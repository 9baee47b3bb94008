"""Instructions as text: every code is written, and read back; what is no instruction is refused."""

from ipusim.pipeline.instructions import NONE, Code, text_of
from ipusim.pipeline.moves import Way
from ipusim.pipeline.ops import Pass
from tests.plans import parse

TEXTS = {
    (Code.FORWARD, 1, 3, NONE): "F1.3",
    (Code.BACKWARD, 0, 0, NONE): "B0.0",
    (Code.RECOMPUTE, 2, 5, NONE): "R2.5",
    (Code.INPUT_GRADIENT, 10, 11, NONE): "I10.11",
    (Code.WEIGHT_GRADIENT, 1, 3, NONE): "W1.3",
    (Code.MEET, NONE, NONE, 1): "meet",
    (Code.MEET, NONE, NONE, 12): "meet x12",
    (Code.SEND, 0, 3, 1): "send 0->1.3",
    (Code.BLOCKING_SEND, 1, 3, 0): "blocking-send 1->0.3",
    (Code.RECEIVE, 1, 3, 0): "receive 0->1.3",
    (Code.INFEED, NONE, 4, NONE): "infeed 4",
    (Code.OUTFEED, NONE, 4, 1): "outfeed 4",
    (Code.OUTFEED, NONE, 4, 6): "outfeed 4 /6",
    (Code.ADD_RESULTS, NONE, 4, NONE): "add-results 4",
    (Code.OUTFEED_TOTAL, NONE, NONE, NONE): "outfeed-total",
    (Code.BEGIN_IO, 1, 2, 0): "begin-io 0 2",
    (Code.BEGIN_IO, 3, NONE, 0): "begin-io 0 . /3",
    (Code.BEGIN_IO, 1, 2, NONE): "begin-io . 2",
    (Code.END_IO, NONE, NONE, NONE): "end-io",
    (Code.LOAD, 1, NONE, Pass.BACKWARD): "load B1",
    (Code.LOAD, NONE, NONE, NONE): "load update",
    (Code.STORE, 1, NONE, Pass.WEIGHT_GRADIENT): "store W1",
    (Code.STORE, NONE, NONE, NONE): "store update",
    (Code.GATHER, 2, NONE, NONE): "gather 2",
    (Code.GATHER, NONE, NONE, NONE): "gather update",
    (Code.RELEASE, 2, NONE, NONE): "release 2",
    (Code.RELEASE, NONE, NONE, NONE): "release update",
    (Code.SUM_COPIES, NONE, NONE, NONE): "sum-copies",
    (Code.ALL_REDUCE, NONE, NONE, NONE): "all-reduce",
    (Code.COLLECTIVE, 1, 3, Pass.BACKWARD): "collective B1.3",
    (Code.UPDATE, NONE, NONE, NONE): "update",
    (Code.END, NONE, NONE, NONE): "end",
    (Code.LOOK_UP, 1, 3, NONE): "look-up 1.3",
    (Code.UPDATE_ROWS, 0, 12, NONE): "update-rows 0.12",
    (Code.HOST_SUM, NONE, NONE, NONE): "host-sum",
    (Code.HOST_UPDATE, NONE, NONE, NONE): "host-update",
    (Code.MOVE, 1, 3, Way.OUT): "move 1.3 out",
    (Code.MOVED, 1, 3, Way.BACK): "moved 1.3 back",
    (Code.OUTSIDE, 0, 7, Pass.RECOMPUTE): "outside R0.7",
}


def test_every_code_has_its_text():
    assert {code for code, *_ in TEXTS} == set(Code)
    for row, text in TEXTS.items():
        assert text_of(*row) == text
        assert parse(f"  {text} ") == row
