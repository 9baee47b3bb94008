"""Programs that several hosts run from the command line: what they print, what is kept, and how they fail."""

import io
import json
from pathlib import Path

import pytest

from ipusim.base.streams import NumberedLines
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.timeline import Timeline
from tests.cli.commands import answer, ipusim
from tests.effort import rarest
from tests.scenarios import ROOT

pytestmark = pytest.mark.usefixtures("without_pictures")

PROGRAM = ROOT / "scenarios" / "python" / "estimator_on_hosts.py"
SMALL = '''"""Hosts that train together."""
import sys
import numpy as np
import horovod.tensorflow as hvd
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.horovod.ipu_horovod_strategy import IPUHorovodStrategy

print("host", hvd.rank(), end=" ")
print("of", hvd.size(), sys.argv[1:], __name__)
print("aside", file=sys.stderr)


def body(x):
    w = tf.get_variable("w", initializer=1.0)
    return tf.train.GradientDescentOptimizer(0.1).minimize(w * x)


with IPUHorovodStrategy().scope():
    dataset = tf.data.Dataset.from_tensors(np.float32(hvd.rank() + 1)).repeat()
    queue = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    loop = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(2, body, [], queue))
    with tf.Session() as session:
        session.run([queue.initializer, tf.global_variables_initializer()])
        session.run(loop)
        print(f"{session.run(tf.global_variables()[0]):.1f}", end="")
'''


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_each_line_says_its_host_and_the_results_are_the_first_ones():
    Path("small.py").write_text(SMALL)
    ran = ipusim("run", "small.py", "--hosts", 3, "--out", "out", "--", "a", columns="80")
    assert ran.returncode == 0
    # Each goes on until it needs the others; a line that is begun is printed when it ends, or the program does.
    said = [f"[{rank}] host {rank} of 3 ['a'] __main__" for rank in range(3)]
    left = 1 - 2 * 0.1 * (1 + 2 + 3)
    lines = ran.stdout.splitlines()
    assert lines[:6] == [*said, *(f"[{rank}] {left:.1f}" for rank in range(3))]
    assert lines[6] == "Hosts that train together."
    assert "3 hosts" in ran.stdout
    assert ran.stderr.splitlines() == [f"[{rank}] aside" for rank in range(3)]
    timeline = Timeline.load(Path("out/timeline.npz"))
    assert timeline.rows(SpanKind.HOST_SUM).size == 4  # of each of two updates, to the host and back
    one = ipusim("run", "small.py", "--hosts", 1, "--out", "one", "--json")
    assert json.loads(one.stdout)["name"] == "small"
    assert one.stderr == "[0] host 0 of 1 [] __main__\n[0] aside\n[0] 0.8\n"


@rarest
def test_an_estimator_trains_on_two_hosts_as_on_one():
    two = answer("run", PROGRAM, "--hosts", 2, "--out", "out", "--quiet", "--", "--steps", "40", "--model-dir", "m")
    *lines, last = two.splitlines()
    assert lines == [
        "[0] Worker 0 of 2",
        "[1] Worker 1 of 2",
        "[0] Reads batches of 32 samples",
        "[1] Reads batches of 32 samples",
    ]
    assert last.startswith("[0] Step 40: loss ")
    one = ipusim("run", PROGRAM, "--out", "out", "--quiet", "--", "--steps", "40", "--model-dir", "n")
    assert one.stdout == f"Worker 0 of 1\nReads batches of 64 samples\n{last.removeprefix('[0] ')}\n"
    assert sorted(path.stem for path in Path("m").glob("*.index")) == ["model.ckpt-0", "model.ckpt-40"]


HEAD = "import sys\nimport horovod.tensorflow as hvd\n"


@pytest.mark.parametrize(
    ("text", "code", "err"),
    [
        (
            f"{HEAD}if hvd.rank() == 1:\n    hvd.broadcast(3.0, 7)\nhvd.broadcast(3.0, 0)",
            2,
            "program.py:4: host 1: root_rank: expected a rank from 0 to 1, got 7\n",
        ),
        (
            f"{HEAD}hvd.broadcast('a', 0)",
            2,
            "program.py:3: host 0: tensor: expected an array or a number, got 'a'\n",
        ),
        (f"{HEAD}sys.exit(7 * hvd.rank())", 7, ""),
        (f"{HEAD}sys.exit('no more' if hvd.rank() else 0)", 1, "[1] no more\n"),
        (
            f"{HEAD}if hvd.rank() == 1:\n    sys.exit(3)\nhvd.broadcast(3.0, 0)",
            3,
            "program.py: host 0 waits for all hosts in horovod.broadcast number 1, but host 1 has ended "
            "(exit code 3)\n",
        ),
        (f"{HEAD}sys.exit(4)", 4, "program.py: host 0 has ended, and the other hosts with it (exit code 4)\n"),
    ],
)
def test_what_fails_on_a_host_is_said_once_with_its_number(text, code, err):
    Path("program.py").write_text(text)
    ran = ipusim("run", "program.py", "--hosts", 2, "--out", "out")
    assert (ran.returncode, ran.stderr) == (code, err)
    assert not Path("out").exists()


def test_each_host_has_the_main_module_of_its_own():
    Path("program.py").write_text(
        f"import pickle\n{HEAD}class Mine: pass\nhvd.broadcast(3.0, 0)\n"
        "mine = pickle.loads(pickle.dumps(Mine()))\nprint(mine.__class__ is Mine is sys.modules['__main__'].Mine)"
    )
    ran = ipusim("run", "program.py", "--hosts", 2)
    assert ran.stdout == "[0] True\n[1] True\n"


def test_what_python_raises_on_a_host_is_printed_as_python_prints_it():
    path = Path("program.py").absolute()
    path.write_text(f"{HEAD}1 / (1 - hvd.rank())")
    ran = ipusim("run", path, "--hosts", 2)
    assert (ran.returncode, ran.stdout) == (1, "")
    lines = ran.stderr.splitlines()
    assert lines[:2] == ["[1] Traceback (most recent call last):", f'[1]   File "{path}", line 3, in <module>']
    assert lines[-1] == "[1] ZeroDivisionError: division by zero"


def test_lines_go_out_when_they_are_whole():
    printed, who = io.StringIO(), [0]
    lines = NumberedLines(printed, lambda: who[0])
    for number, text in ((0, "a"), (1, "b\nc"), (None, "nobody\n"), (0, "d\n\ne"), (1, "")):
        who[0] = number
        assert lines.write(text) == len(text)
    assert printed.getvalue() == "[1] b\nnobody\n[0] ad\n[0] \n"
    lines.finish()
    lines.finish()
    assert printed.getvalue().endswith("\n[0] e\n[1] c\n")
    assert (lines.isatty(), lines.encoding) == (printed.isatty(), printed.encoding)
