"""What a new rate, optimizer, option of the pipeline and front door cost: a row, a class, three files, one module.

The option has another name in Graphcore's API, where a configuration refuses it until it has its row.
"""

import pytest

from tests.scenarios import ROOT

RATE = """\
    settle_cycles: Fraction = describe(
        0, "cycles", (0, 10**6), part="computation", meaning="wait before each launch", source="assumed",
        evidence="nothing is published",
    )
"""
KEY = """\
    repeat_twice: Annotated[bool, Attribute("each step twice as long", name="optimizations.enable_fast_math")] = Field(
        default=False, description="whether a step has twice the executions"
    )
"""
RULE = """\
    if options.pipeline.repeat_twice and options.pipeline.repeat_count > 100:
        findings.add(("pipeline", "repeat_twice"), "expected a repeat_count of at most 100 with it, got more")
"""
OPTIMIZER = """

@dataclass(frozen=True)
class SignDescent:
    \"\"\"Sign descent: W -= learning_rate * the gradient's sign.\"\"\"

    kind: ClassVar[str] = "sign"
    graphcore: ClassVar[str] = "SignDescentOptimizer"

    learning_rate: LearningRate
    floor: Annotated[float, Ge(0), Le(1), Doc("shorter gradients count as none")] = 0.0
    gradient_map: GradientMapping = None

    def initial_state(self, parameters: Parameters) -> State:
        return {}

    def apply(self, parameters: Parameters, gradients: Parameters, state: State) -> None:
        for name, variable in parameters.items():
            gradient = gradients[name]
            variable -= self.learning_rate * np.sign(gradient) * (np.abs(gradient) > self.floor)

    def work(self, parameter_count: int, itemsize: int) -> Work:
        return SGD(self.learning_rate).work(parameter_count, itemsize)

    def state_bytes(self, parameter_count: int, itemsize: int) -> int:
        return 0
"""
LEARNING = """\
system: {name: m2000}
data: {type: synthetic, shape: [5], classes: 3, samples: 48}
model:
  layers:
    - {name: hidden, type: dense, units: 8, activation: tanh}
    - {name: scores, type: dense, units: 3}
    - {name: far, type: softmax_cross_entropy}
pipeline: {splits: [scores], micro_batch_size: 2, gradient_accumulation_count: 4}
optimizer: {type: sign, learning_rate: 0.01, map_gradient: {clip_by_norm: 1}}
steps: 60
"""
#: A front door that reads TOML: it builds a Request, and says where a problem stands in its own way.
DOOR = """
import tomllib
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.problems import RequestError, dotted
from ipusim.runs.request.request import Request

def run(text):
    try:
        return execute(assemble(Request.from_dict(tomllib.loads(text), name="toml")))
    except RequestError as error:
        raise SystemExit("\\n".join(f"[{dotted(each.path)}] {each.text}" for each in error.problems)) from None
"""
#: A program in Graphcore's API, whose configuration has the option's attribute.
PROGRAM = """
import numpy as np
from ipusim.base.errors import ProgramError
from tests.programs import hosted_names, pipelined

def executions(math, repeat_count):
    with hosted_names() as names:
        tf, device = names.tf, {"optimizations__enable_fast_math": math == "fast"}
        ones = tf.data.Dataset.from_tensors(np.ones(4, np.float32)).repeat()
        try:
            ran = pipelined(names, [tf.tanh, tf.tanh], ones, 4, ipus=2, device=device, repeat_count=repeat_count)
        except ProgramError as error:
            return str(error)
    return ran.job.program.repeat_count
"""
TOML = """
[system]
name = "m2000"
[pipeline]
gradient_accumulation_count = 4
stages = [{name = "a", forward = 100, backward = 200}, {name = "b", forward = 100, backward = 200}]
"""
SCENARIO = ROOT / "scenarios" / "tutorial_step3_pipelining.yaml"


BESIDE = {"learning.yaml": LEARNING, "toml_door.py": DOOR, "graphcores_program.py": PROGRAM}


def change(package):
    first = "    compute_set_cycles: Fraction = _cycles("
    package.put("hardware/computation_rates.py", first, RATE + first)
    sets = "sets, rates.compute_set_cycles"
    package.put("pricing/passes.py", f"{sets})", f"{sets} + rates.settle_cycles)")
    key = "    repeat_count: Annotated["
    package.put("runs/request/pipeline_spec.py", key, KEY + key)
    anchor = '    with findings.collect(("pipeline", "continuous_weight_updates")):'
    package.put("runs/assemble/sections.py", anchor, RULE + anchor)
    before = "        repeat_count=pipeline.repeat_count,"
    package.put("runs/assemble/program.py", before, before[:-1] + " * (1 + pipeline.repeat_twice),")
    package.add("model/learning/optimizers.py", OPTIMIZER)


@pytest.fixture(scope="module")
def page(changed):
    """Lines of the page of Graphcore's options."""
    return changed("from reports.__main__ import options; print(options())").splitlines()


LOSSES = """
import sys
from ipusim.runs.execute import execute
from ipusim.app.scenario import load_job
summary = execute(load_job("learning.yaml", [f"optimizer.floor={sys.argv[1]}"])).summary
print(*summary.learning.mean_loss_by_step)
"""


def test_a_rate_is_a_row_and_its_use(changed):
    costs = changed.ipusim("check", SCENARIO, "--set", "rates.settle_cycles=1000", "--costs")
    plain = changed.ipusim("check", SCENARIO, "--costs")
    assert costs != plain
    assert "settle_cycles" in changed.ipusim("check", "--schema")
    assert "settle_cycles" in changed.ipusim("devices", "m2000", "--figures")
    refused = changed.ipusim("check", SCENARIO, "--set", "rates.settle_cycles=-1", returncode=2)
    assert refused.startswith("--set rates.settle_cycles: expected ")
    near = changed.ipusim("check", SCENARIO, "--set", "rates.setle_cycles=1", returncode=2)
    assert "got 'setle_cycles'; did you mean settle_cycles?" in near


def test_an_option_is_its_key_its_rule_and_its_effect(changed):
    words = "check", SCENARIO, "--set", "pipeline.repeat_twice=true"
    assert "100 weight updates," in changed.ipusim("check", SCENARIO)
    assert "200 weight updates," in changed.ipusim(*words)
    assert "whether a step has twice the executions" in changed.ipusim("check", "--schema")
    refused = changed.ipusim(*words, "--set", "pipeline.repeat_count=101", returncode=2)
    assert refused == "--set pipeline.repeat_twice: expected a repeat_count of at most 100 with it, got more\n"
    wrong = changed.ipusim("check", SCENARIO, "--set", "pipeline.repeat_twice=2", returncode=2)
    assert wrong == "--set pipeline.repeat_twice: expected true or false, got 2\n"


def test_graphcores_name_of_an_option_comes_with_its_row(changed, page):
    code = "import sys; from graphcores_program import executions; print(executions(sys.argv[1], int(sys.argv[2])))"
    assert changed(code, "exact", 3) == "3\n"
    assert changed(code, "fast", 3) == "6\n"
    name = "optimizations.enable_fast_math"
    text = f"IPUConfig.{name}: expected a repeat_count of at most 100 with it, got more\n"
    assert changed(code, "fast", 101) == text
    assert f"| `{name}` | `pipeline.repeat_twice` | each step twice as long |" in page


def test_an_optimizer_is_its_class(changed, page):
    losses = [float(loss) for loss in changed(LOSSES, "0.0").split()]
    assert losses[-1] < losses[0] / 1.5
    floored = [float(loss) for loss in changed(LOSSES, "1.0").split()]
    assert (floored[0], floored[-1] / losses[-1]) == (losses[0], pytest.approx(1.33, abs=0.01))
    wrong = changed.ipusim("check", "learning.yaml", "--set", "optimizer.floor=2", returncode=2)
    assert wrong == "--set optimizer.floor: expected a number from 0 to 1, got 2\n"
    text = "Sign descent: W -= learning_rate * the gradient's sign."
    assert f"| `SignDescentOptimizer` | `optimizer.type: sign` | {text} |" in page
    kinds = "sgd, momentum, sign, adam, lamb, lars, rmsprop, adagrad, adadelta or ftrl"
    assert any(f"`optimizer` | {kinds}, with" in row for row in page)


def test_a_front_door_is_a_builder_of_requests(changed):
    code = "import sys, toml_door; print(toml_door.run(sys.argv[1]).summary.makespan_cycles > 0)"
    assert changed(code, TOML) == "True\n"
    said = changed(code, TOML.replace("= 4", "= 3"), returncode=1)
    assert said.startswith("[pipeline.gradient_accumulation_count] The number of iterations of the pipeline must be")
