"""`ipusim validate --fit`: what it predicts, prints and writes, and when it refuses."""

import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ipusim.app.fidelity.calibration import calibrate
from ipusim.app.fidelity.calibration_report import rates_file
from ipusim.app.fidelity.calibration_rows import read_measured, throughputs
from ipusim.app.fidelity.rate_problem import Problem
from ipusim.app.fidelity.throughput_rows import PUBLISHED, read_throughputs
from ipusim.app.fidelity.throughputs import prepare_rows, simulate_rows
from ipusim.app.scenario import load_job
from ipusim.hardware.rates import DEFAULT_RATES, RATES
from ipusim.runs.request.rates_file import read_rates
from ipusim.runs.request.rates_spec import rates_of
from tests.cli.commands import answer, ipusim, refusal
from tests.effort import rarest, slowest
from tests.machine_costs import MODEL, stage_rows, throughput_rows, write_scenarios
from tests.scenarios import SCENARIOS

HEADER = "model,machine,ipus,micro_batch,count,items_per_s,framework,items,settings\n"
TRUTH = DEFAULT_RATES.with_values(vector_slowdown=Fraction(4), compute_set_cycles=Fraction(900))
SIZES = ("large", "small")
NAMES = "compute_set_cycles,vector_slowdown"
STAGES = "scenario,stage,forward\n"
OWN = "rows.csv"


@pytest.fixture
def own(own, tmp_path):
    """Write CSV beside two scenarios."""
    write_scenarios(tmp_path)
    return own


@pytest.fixture
def stages(own, tmp_path):
    return own(stage_rows(tmp_path, ("large.yaml", "small.yaml"), TRUTH, noise=0.01))


def published(system, count):
    """Return the published row of BERT-Large with PopART of a system, as the package's file has it."""
    (row,) = [
        each
        for each in read_throughputs(PUBLISHED)
        if (each.model, each.framework, each.machine, each.micro_batch, each.count)
        == ("bert_large", "popart", system, 8, count)
    ]
    cells = (row.model, row.machine, row.ipus, row.micro_batch, row.count, row.items_per_s, row.framework, row.items)
    return row, f"{','.join(map(str, cells))},{';'.join(row.settings)}\n"


@rarest
def test_a_pod64_is_predicted_within_five_per_cent_from_a_pod16_alone(own, tmp_path):
    _, small = published("bow_pod16", 2048)
    large, _ = published("bow_pod64", 512)
    done = answer(
        "validate", "--fit", own(HEADER + small), "--rates", "vector_slowdown", "--out", tmp_path / "mine.yaml"
    )
    assert "The uncertainty of the rates is not known, because the fit has as many rates as rows" in done
    rates = rates_of(read_rates(tmp_path / "mine.yaml"))
    assert [rate.name for rate in rates.changed_rates()] == ["vector_slowdown"]
    (fitted,) = simulate_rows(prepare_rows([published("bow_pod16", 2048)[0]]), rates)
    assert abs(fitted.error) < 0.005
    (predicted,) = simulate_rows(prepare_rows([large]), rates)
    assert abs(predicted.error) < 0.05


@pytest.mark.parametrize(
    "rate", [rate for rate in RATES if rate.plausible and rate.plausible[0] == 0], ids=lambda rate: rate.name
)
def test_a_rate_that_may_be_nothing_has_a_range_that_a_fit_can_begin_in(rate, stages):
    problem = Problem(read_measured([stages]), [rate])
    assert np.isfinite(problem.low).all()
    assert problem.low[0] < problem.start[0] < problem.high[0]


def test_the_example_has_rows_that_the_package_has():
    path = SCENARIOS / "measured_throughputs.csv"
    assert {replace(row, use="held") for row in read_throughputs(path)} == {
        replace(published(*which)[0], use="held") for which in (("bow_pod16", 2048), ("bow_pod64", 512))
    }


def test_rates_are_printed_with_their_uncertainty_and_errors_with_the_names_of_rows(stages):
    found = calibrate(read_measured([stages]), NAMES.split(","))
    done = answer("validate", "--fit", stages, "--rates", NAMES, columns="")
    assert sum(map(abs, found.after)) < sum(map(abs, found.before)) / 5
    for each in found.fitted:
        assert re.search(
            rf"{each.rate.name} +{float(each.before):g} cycles +{float(each.value):g} cycles +"
            rf"± {each.uncertainty:.1%} +[\d.]+ to \d+ cycles *\n",
            done,
        )
    assert re.search(r"large, weight update of stage0 +[+-]\d+\.\d% +[+-]\d\.\d% *\n", done)


def test_what_is_written_says_what_it_comes_from_and_a_scenario_takes_it(stages, tmp_path):
    done = ipusim("validate", "--fit", stages, "--rates", NAMES, "--out", tmp_path / "mine.yaml")
    assert done.stdout.splitlines()[-1] == (
        f"{tmp_path / 'mine.yaml'}: a scenario in the same folder uses these rates with `rates: mine.yaml`"
    )
    head = [line for line in (tmp_path / "mine.yaml").read_text().splitlines() if line.startswith("#")]
    assert head == [
        f"# Rates fitted by `ipusim validate --fit` to {stages}.",
        f"# {done.stdout.splitlines()[0]}",
        "# A scenario in the same folder uses these rates with `rates: mine.yaml`.",
    ]
    (tmp_path / "scenario.yaml").write_text(f"{MODEL}rates: mine.yaml\n")
    found = calibrate(read_measured([stages]), NAMES.split(","))
    assert load_job(tmp_path / "scenario.yaml").system.rates == found.rates
    text = (tmp_path / "mine.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("validate --fit", "calibrate"))  # as an earlier ipusim wrote it
    over = ipusim("validate", "--fit", stages, "--rates", NAMES, "--out", tmp_path / "mine.yaml")
    assert (over.returncode, over.stdout, over.stderr) == (0, done.stdout, "")
    assert (tmp_path / "mine.yaml").read_text() == text
    again = ipusim("validate", "--fit", stages, "--rates", NAMES, "--out", tmp_path / "other.yaml")
    assert again.stdout.splitlines()[:-1] == done.stdout.splitlines()[:-1]
    assert (tmp_path / "other.yaml").read_text().splitlines()[3:] == (tmp_path / "mine.yaml").read_text().splitlines()[
        3:
    ]


def test_every_kind_of_rate_is_written_as_a_scenario_reads_it(own, tmp_path):
    """Those that a scenario had chosen stay beside those that are fitted."""
    rates = "{link: 20 GB/s, rung_links: 6, hop_latency: 20.5 ns, sync_skew_cycles: 300, session_run: 123.4567 ms}"
    (tmp_path / "large.yaml").write_text(f"{MODEL}rates: {rates}\n")
    chosen = load_job(tmp_path / "large.yaml").system.rates
    path = own(stage_rows(tmp_path, ("large.yaml",), TRUTH, noise=0.01))
    found = calibrate(read_measured([path]), ["compute_set_cycles"])
    (tmp_path / "mine.yaml").write_bytes(rates_file(found, "mine.yaml"))
    assert rates_of(read_rates(tmp_path / "mine.yaml")) == found.rates
    (fitted,) = found.fitted
    assert found.rates == chosen.with_values(compute_set_cycles=fitted.value)
    assert (tmp_path / "mine.yaml").read_text().count("# as in the scenarios\n") == 5


def test_without_names_it_fits_what_the_rows_tell_and_says_what_of_the_rest(stages):
    found = calibrate(read_measured([stages]))
    names = [each.rate.name for each in found.fitted]
    left_out = [rate.name for rate, _ in found.left_out]
    assert {"compute_set_cycles", "vector_slowdown"} <= {*names}
    assert sorted(names + left_out) == sorted(rate.name for rate in RATES if rate.part == "computation")
    assert left_out
    done = ipusim("validate", "--fit", stages, columns="")
    for rate, why in found.left_out:
        assert f"Not fitted: {rate.name}: {why}." in done.stdout


def test_rows_of_both_kinds_are_fitted_together(own, stages, tmp_path):
    truth = TRUTH.with_values(session_run_ns=Fraction(1_500_000))
    rows = [f"large.yaml,m2000,4,256,{count},popart" for count in (8, 10**5)]
    throughput_rows(tmp_path / "throughputs.csv", rows, truth)
    found = calibrate(
        read_measured([stages, tmp_path / "throughputs.csv"]), ["vector_slowdown", "compute_set_cycles", "session_run"]
    )
    assert len(found.rows.names) == 24
    for each in found.fitted:
        assert float(each.value / getattr(truth, each.rate.attribute)) == pytest.approx(1, rel=each.uncertainty * 2)


def test_a_rate_at_the_edge_of_its_range_and_rates_that_are_hardly_told_apart_are_named(own, tmp_path):
    beyond = DEFAULT_RATES.with_values(vector_slowdown=Fraction(8))
    text = stage_rows(tmp_path, ("large.yaml", "small.yaml"), beyond, noise=0.01)
    done = ipusim("validate", "--fit", own(text), "--rates", "vector_slowdown", columns="")
    assert re.search(r"vector_slowdown +3\.053 cycles +5 cycles .*2\.5 to 5 cycles \(at its edge\)", done.stdout)
    assert "hardly distinguish" not in done.stdout
    both = ["amp_ceiling", "exchange_efficiency"]
    (alike,) = calibrate(read_measured([own(text)]), both).correlated
    assert ([rate.name for rate in alike.rates], alike.correlation < -0.95) == (both, True)
    done = ipusim("validate", "--fit", own(text), "--rates", ",".join(both), columns="")
    assert (
        f"The rows hardly distinguish {both[0]} and {both[1]} (correlation {alike.correlation:.2f}): a larger value "
        "of one offsets another.\n" in done.stdout
    )


def refused(*words, **options):
    return refusal("validate", "--fit", *words, **options)


def test_fewer_rows_than_rates_are_refused(own, tmp_path):
    path = own("scenario,stage,forward\nlarge.yaml,0,1\nlarge.yaml,1,1\nlarge.yaml,2,0\nlarge.yaml,3,0\n")
    names = "amp_ceiling,vector_slowdown,compute_set_cycles"
    assert refused(path, "--rates", names, "--out", tmp_path / "mine.yaml") == (
        "expected at least as many rows as rates, 3, got 2: measure more, or fit fewer rates\n"
    )
    assert not (tmp_path / "mine.yaml").exists()


def test_a_row_that_is_nearly_infinitely_off_has_a_time_all_the_same(own):
    """Of 1e12 items a second, of which a sample has 1e-12: the error rounds to -100 %, and the time to no infinity."""
    row = "large.yaml,m2000,4,256,8,{},,{},\n"
    rows = read_throughputs(own(HEADER + row.format("1e12", "1e-12") + row.format(1, 1)))
    far, plain = throughputs(rows).time_ratios(DEFAULT_RATES)
    assert far == pytest.approx(plain * 1e24)


def test_rates_that_no_row_feels_are_refused_with_the_row_that_would_tell_them(stages):
    assert refused(stages, "--rates", "hop_latency,vector_slowdown,session_run").splitlines() == [
        "hop_latency: expected a row that depends on the rate, got none: add a row with a larger share of time in "
        "copy sync, copy latency or rounds (`ipusim check SCENARIO --costs`)",
        "session_run: expected a row that depends on the rate, got none: add a row of a program with a framework "
        "whose session run takes milliseconds",
    ]


@slowest
def test_rates_that_act_together_alone_are_refused_by_name(own):
    together = "expected rows that distinguish the rates, got rows in which only their common effect shows"
    rows = "".join(f"{name}.yaml,{stage},{'100000' if stage == 1 else '0'}\n" for name in SIZES for stage in range(4))
    assert refused(own(f"scenario,stage,forward\n{rows}"), "--rates", "vector_slowdown,transcendental_operations") == (
        f"vector_slowdown, transcendental_operations: {together}: fit vector_slowdown or transcendental_operations, "
        "or add a row with a larger share of time in adding or host computes (`ipusim check SCENARIO --costs`)\n"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rates", "amp_ceilin"], "--rates: got 'amp_ceilin'; did you mean amp_ceiling? Expected rates out of amp"),
        (["--rates", "rail_links"], "--rates: expected rates that can take any value, got rail_links, a whole number"),
        (["--rates", "amp_ceiling,amp_ceiling"], "--rates: expected each rate once, got amp_ceiling twice"),
        (["--out", "mine.txt"], "--out: expected rates named .yaml or .yml, got mine"),
        (["--rows", "more.csv"], "--rows: expected either this option or --fit, got both\n"),
        (["--fit", "more.csv", "--fit", "more.csv"], "--fit: expected each file once, got more.csv a second time\n"),
        (["--fit", "more.csv"], "more.csv: expected a file, got no such file"),
    ],
)
def test_wrong_options_are_refused(stages, options, message):
    assert refused(stages, *options).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stage,forward\n0,1\n", "{}/rows.csv:1: expected a column 'scenario' in addition to stage, forward\n"),
        (f"{STAGES},0,1\n", "{}/rows.csv:2: column scenario: expected the path of a scenario, got nothing\n"),
        (
            f"{STAGES}large.yaml,0,1\n",
            "{}/rows.csv: large.yaml: expected a row for each of the 4 stages, got 1: none for ",
        ),
        (f"{STAGES}none.yaml,0,1\n", "{}/none.yaml: expected a scenario file, got no such file\n"),
        (
            f"{STAGES}timed.yaml,0,1\n",
            "{}/rows.csv: column scenario: expected a scenario with a model, for simulated times of passes, got "
            "stages with only costs: timed.yaml\n",
        ),
        (
            STAGES + "".join(f"{name}.yaml,{stage},1\n" for name in ("large", "other") for stage in range(4)),
            "{0}/other.yaml: expected the rates of {0}/large.yaml, since a fit starts from the same rates for all "
            "scenarios, got a different amp_ceiling: 0.9 of peak instead of 0.9433 of peak\n",
        ),
        (
            STAGES + "".join(f"large.yaml,{stage},0\n" for stage in range(4)),
            "{}/rows.csv: expected a row with a measured and simulated time\n",
        ),
    ],
)
def test_what_is_wrong_with_rows_is_told_with_its_place(own, tmp_path, text, message):
    (tmp_path / "other.yaml").write_text(f"{MODEL}rates: {{amp_ceiling: 0.9}}\n")
    (tmp_path / "timed.yaml").write_text(
        "system: {name: m2000}\npipeline: {stages: [{name: a, forward: 1}], schedule: single, "
        "gradient_accumulation_count: 1}\n"
    )
    assert refused(own(text)).startswith(message.format(tmp_path))
