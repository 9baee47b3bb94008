"""Programs in Graphcore's API on the command line: they run as by themselves, and leave what a scenario leaves."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from ipusim.ipu.graph import tensorflow_import
from ipusim.timeline.timeline import Timeline
from tests.cli.commands import CALLING, answer, ipusim, process, refusal
from tests.effort import rarest
from tests.programs import needs_tensorflow
from tests.scenarios import SCENARIOS

pytestmark = pytest.mark.usefixtures("without_charts")


@pytest.fixture(autouse=True)
def _tensorflow():
    needs_tensorflow()


SMALL = '''"""A small program.

More of it.
"""

import os
import sys
import threading

import beside
import tensorflow as tf
from tensorflow.python import ipu


def first(x):
    with tf.variable_scope("hidden"):
        return tf.keras.layers.Dense(4)(x)


def second(x):
    with tf.variable_scope("out"):
        return tf.reduce_mean(tf.keras.layers.Dense(2)(x) ** 2)


def learn(loss):
    return ipu.pipelining_ops.OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(0.1), loss)


def model():
    return ipu.pipelining_ops.pipeline(
        [first, second], 4, infeed_queue=model.queue, outfeed_queue=ipu.ipu_outfeed_queue.IPUOutfeedQueue(),
        optimizer_function=learn, name="small"
    )


if __name__ == "__main__":
    print(__file__, sys.argv, os.path.basename(os.getcwd()), beside.WORD, sys.modules["__main__"].model is model)
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
        threading.Thread(target=print, args=("from a thread",)).start()
        with tf.Graph().as_default(), tf.Session() as session:
            dataset = tf.data.Dataset.from_tensors(tf.ones([2, 3])).repeat()
            model.queue = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
            compiled = ipu.ipu_compiler.compile(model)
            session.run([tf.global_variables_initializer(), model.queue.initializer])
            session.run(compiled)
            session.run(compiled)
'''


@pytest.fixture
def program(tmp_path, monkeypatch):
    (tmp_path / "small.py").write_text(SMALL)
    (tmp_path / "beside.py").write_text("WORD = 'beside'\n")
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("beside", None)  # of a test before, in another folder
    yield Path("small.py")
    sys.modules.pop("beside", None)


def written(tmp_path, text):
    path = tmp_path / "program.py"
    path.write_text(text)
    return path


def test_a_program_runs_as_by_itself_and_its_verdict_follows(program):
    ran = ipusim("run", program, columns="80")
    Path("alone.py").write_text(f"import ipusim.ipu\n{SMALL}".replace("small.py", "alone.py"))
    alone = subprocess.run([sys.executable, "alone.py"], capture_output=True, text=True, check=True)
    assert alone.stderr == ""
    printed = alone.stdout.replace("alone.py", "small.py")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert printed.startswith(f"{Path.cwd() / program} ['small.py'] {Path.cwd().name} beside True\nfrom a thread\n")
    assert ran.stdout.startswith(printed + "A small program.\nsmall\n")
    assert " schedule                 grouped in lock-step, 2 IPUs of m2000" in ran.stdout
    said = ran.stdout.removeprefix(printed)
    assert max(map(len, said.splitlines())) <= 80
    assert "reports/small: scenario.yaml, summary.json, losses.csv, weights.npz," in " ".join(said.split())
    assert (Timeline.load(Path("reports/small/timeline.npz")).info.executions) == 2


FORKS = """
def child(ends):
    if made := os.fork():
        print(ends, "ended with", os.waitstatus_to_exitcode(os.waitpid(made, 0)[1]), flush=True)
    return not made


"""


@rarest
def test_children_that_it_forks_write_no_results(program):
    before, main, after = SMALL.partition("if __name__")
    early = "if child('before'):\n    sys.exit()\n"
    ends = {"sys.exit(3)": 3, "1 / 0": 1, "model": 0}
    late = "".join(f"\n{'el' if number else ''}if child({end!r}):\n    {end}" for number, end in enumerate(ends))
    program.write_text(before + FORKS + early + main + after + late)
    ran = process("run", program, "--out", "out", text=True)
    assert (ran.returncode, ran.stderr.count("ZeroDivisionError")) == (0, 1), ran.stderr
    for end, code in {"before": 0, **ends}.items():
        assert ran.stdout.count(f"{end} ended with {code}\n") == 1, ran.stdout
    assert ran.stdout.count("out: scenario.yaml") == 1
    assert Timeline.load(Path("out/timeline.npz")).info.executions == 2
    assert {path.name for path in Path("out/.ipusim").iterdir()} == {"lock", "files.sha256"}


READER = """
import threading, time
def read():
    for _ in range(600):
        time.sleep(0.1)
threading.Thread(target=read, name="reader").start()
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of SystemExit, which is silent
@pytest.mark.parametrize("end", ["1 / 0", "import sys; sys.exit(3)", "import tensorflow.python.ipu.unknown"])
def test_a_thread_of_its_own_ends_with_a_program_that_fails(tmp_path, end):
    assert ipusim("run", written(tmp_path, READER + end)).returncode > 0
    readers = [thread for thread in threading.enumerate() if thread.name == "reader"]
    for thread in readers:
        thread.join(10)
    assert not any(thread.is_alive() for thread in readers)


def test_its_folder_is_read_back_as_any(program):
    assert ipusim("run", program, "--out", "out", "--quiet").returncode == 0
    for words, expected in (
        (("explain", "out"), "Critical path"),
        (("compare", "out", "out/scenario.yaml", "--out", "compared"), "as fast as "),
        (("report", "out", "--out", "page.html"), "page.html"),
        (("show", "out", "--out", "out/spans.csv"), "spans.csv"),
        (("show", "out", "--phase", "main"), "trace-main.png"),
        (("check", "out/scenario.yaml"), "2 stages"),
    ):
        assert expected in answer(*words)


def test_options_go_to_the_profile_and_words_to_the_program(program):
    ran = ipusim("run", program, "--out", "out", "--profile-steps", 1, "--synthetic", "--json", "--", "2", "--set", "x")
    said, end = json.JSONDecoder().raw_decode(ran.stdout)
    assert ran.stdout.count('"verdict": {') == 2  # of each program one
    assert json.loads(ran.stdout[end:])["name"] == said["name"] == "small"
    assert "['small.py', '2', '--set', 'x']" in ran.stderr
    assert said["notes"] == ["The profile has the first 1 of 2 session runs."]
    assert sorted(path.name for path in Path("out").iterdir() if path.is_dir()) == [".ipusim", "small", "small_2"]
    assert "use_synthetic_data: true" in Path("out/small_2/scenario.yaml").read_text()


def test_no_link_in_place_of_the_folder_of_one_of_several_is_followed(program):
    Path("victim").mkdir()
    Path("out").mkdir()
    Path("out/small_2").symlink_to("../victim")
    ran = ipusim("run", program, "--out", "out", "--", "2")
    refused = "out/small_2: expected a folder, got a link, which is not followed in a folder of results; name another\n"
    assert (ran.returncode, ran.stderr) == (2, refused)
    assert list(Path("victim").iterdir()) == []
    assert {path.name for path in Path("out").iterdir()} == {"small_2"}


def test_a_part_of_the_picture_that_is_not_there(program):
    ran = ipusim("run", program, "--out", "out", "--execution", 7, "--quiet")
    text = "--execution: expected an execution from 0 to 1, got 7; the picture shows execution 1 instead\n"
    assert (ran.returncode, ran.stderr) == (2, text)
    assert Path("out/trace.png").exists()


def test_its_scenario_is_printed_or_written(program):
    printed = ipusim("import", program)
    assert printed.returncode == 0
    assert printed.stdout.startswith("# A small program.\n\n# Written by `ipusim import`")
    assert printed.stderr.startswith("small.py is a program: it is run\n")
    assert "['small.py']" in printed.stderr
    ran = ipusim("import", program, "--out", "said.yaml")
    assert ran.stdout.endswith("said.yaml\n")
    assert Path("said.yaml").read_text() == printed.stdout
    assert ipusim("run", "said.yaml", "--out", "one").returncode == 0
    assert ipusim("run", program, "--out", "two").returncode == 0
    one, two = (Timeline.load(Path(name) / "timeline.npz") for name in ("one", "two"))
    assert np.array_equal(one.end, two.end)
    Path("said.yaml").write_text(printed.stdout.replace("`ipusim import`", "`ipusim scenario`"))  # of an older version
    assert ipusim("import", program, "--out", "said.yaml").returncode == 0
    assert Path("said.yaml").read_text() == printed.stdout
    several = refusal("import", program, "--", "2")
    assert several.endswith(
        "--pipeline: expected the number of a pipeline or loop of small.py: 0 small, 1 small; got none\n"
    )
    assert ipusim("import", program, "--pipeline", "1", "--", "2").returncode == 0
    assert ipusim("import", program, "--pipeline", "2", "--", "2").stderr.endswith("0 small, 1 small; got 2\n")


@pytest.mark.parametrize(
    ("text", "code", "out", "err"),
    [
        ("print('hello')", 0, "hello\n", "{}: no pipeline or loop has run on IPUs, so there are no results\n"),
        (
            "from tensorflow.python import ipu\n\n\ndef f():\n    ipu.pipelining_ops.pipeline([abs], 3)\n\n\nf()",
            2,
            "",
            "{}:5: Pipeline requires at least two computational stages.\n",
        ),
        (
            "print('a')\n1 / 0",
            1,
            "a\n",
            'Traceback (most recent call last):\n  File "{}", line 2, in <module>\n    1 / 0\n    ~~^~~\n'
            "ZeroDivisionError: division by zero\n",
        ),
        ("import sys\nsys.exit('no more')", 1, "", "no more\n"),
        ("import sys\nsys.exit(7)", 7, "", ""),
        ("raise SystemExit", 0, "", "{}: no pipeline or loop has run on IPUs, so there are no results\n"),
        (
            "from tensorflow.python import ipu\nipu.ipu_compiler.compile(3)",
            2,
            "",
            "{}:2: computation: expected a function of the inputs, got 3\n",
        ),
        ("print(", 2, "", "{}:1: SyntaxError: '(' was never closed\n"),
        ("\0", 2, "", "{}:1: SyntaxError: source code string cannot contain null bytes\n"),
        (
            "from ipusim import ipu\nwith ipu.profile('other'):\n    pass",
            2,
            "",
            "{}:2: profile: expected no profile inside another, got other inside out, which also records the "
            "runs of the inner block\n",
        ),
    ],
)
def test_a_program_that_ends_otherwise(tmp_path, monkeypatch, text, code, out, err):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, text)
    ran = ipusim("run", path, "--out", "out")
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, out, err.format(path))
    assert not Path("out").exists()


@pytest.mark.parametrize("command", ["run", "import"])
def test_help_of_a_program_ends_without_a_word_on_results(tmp_path, command):
    path = written(tmp_path, "import argparse\nargparse.ArgumentParser(prog='mine').parse_args()\n")
    ended = ipusim(command, path, "--out", tmp_path / "out.yaml", "--", "--help")
    assert (ended.returncode, ended.stdout[:17]) == (0, "usage: mine [-h]\n")
    assert ended.stderr == ("" if command == "run" else f"{path} is a program: it is run\n")
    assert not (tmp_path / "out.yaml").exists()


def test_tensorflow_that_was_imported_before_is_refused_in_one_line(tmp_path):
    path = written(tmp_path, "import sys\nsys.modules['tensorflow'] = sys\nimport ipusim.ipu\n")
    environment = {name: value for name, value in os.environ.items() if name not in tensorflow_import.SETTINGS}
    alone = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False, env=environment)
    assert (alone.returncode, alone.stdout) == (2, "")
    assert alone.stderr.startswith(f"{path}:3: TensorFlow was imported before ipusim.ipu, ")
    assert len(alone.stderr.splitlines()) == 1


def test_only_programs_import_tensorflow(tmp_path):
    """Nor does the import of the package that serves them."""
    code = (
        f"import sys\n{CALLING}\nimport ipusim.ipu\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('tensorflow', 'tf_keras')])"
    )
    words = ["run", SCENARIOS / "tutorial_step3_pipelining.yaml", "--set", "steps=1", "--out", tmp_path, "--quiet"]
    lines = ["--help", "\t".join(map(str, words))]
    done = subprocess.run([sys.executable, "-c", code, *lines], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["run", "small.py", "--set", "a=1"],
            "--set: expected a scenario with a key 'a=1' to change, got the program small.py\n",
        ),
        (
            ["run", "some{}.yaml", "--synthetic"],
            "--synthetic: expected a program, a Python file, got some{}.yaml: for a scenario use --set "
            "use_synthetic_data=true\n",
        ),
        (
            ["run", "{x}.yaml", "--profile-steps", "1"],
            "--profile-steps: expected a program, a Python file, got {x}.yaml: for a scenario use --set steps=N\n",
        ),
        (
            ["run", "some.yaml", "--hosts", "2"],
            "--hosts: expected a program, a Python file, got some.yaml: for a scenario use --set system.host.count=2\n",
        ),
        (["run", "small.py", "--hosts", "2000"], "--hosts: expected at most 1,024, got 2,000\n"),
        (
            ["run", "small.py", "--check-times"],
            "--check-times: expected a scenario, got the program small.py, which runs in parts\n",
        ),
        (["run", "small.py", "--hosts", "0"], None),
        (["run", "smal.py"], "smal.py: expected a program, a Python file, got no such file; did you mean small.py?\n"),
        (["run", "."], None),
        *(
            (["import", f"small.{ending}", *words], f"{words[0]}: expected either this option or {other}, got both\n")
            for ending, other, *options in (
                ("py", "a program", ["--stages", "2"], ["--replay"], ["--name", "forward=f*"]),
                ("json", "a measured file", ["--pipeline", "1"], ["--synthetic"]),
            )
            for words in options
        ),
        (["run", "small.py", "--quiet", "--json"], None),
        (["run", "some.yaml", "more"], None),
        (["run", "small.py", "--from", "3", "--to", "2"], "--from: expected a cycle before --to 2, got 3\n"),
        (["run", "small.py", "--profile-steps", "0"], None),
    ],
)
def test_wrong_words_are_told_before_anything_runs(program, words, text):
    ran = refusal(*words)
    assert ran
    assert text is None or ran == text
    assert not Path("reports").exists()
