"""Published throughputs, simulated: what is held of them, that carrying on is exact, and a person's own rows."""

import csv
import io
import re
from dataclasses import replace
from fractions import Fraction

import matplotlib.image
import numpy as np
import pytest

from ipusim.app.fidelity.error_intervals import Interval, rows_by_kind, widening_factor
from ipusim.app.fidelity.throughput_fit import (
    FIT_RATES,
    PROGRAM_SPREAD,
    ROW_SPREAD,
    fitted_rates,
    source_of,
    with_sources_left_out,
)
from ipusim.app.fidelity.throughput_report import sensitivity_table, throughput_table
from ipusim.app.fidelity.throughput_rows import MODELS, PUBLISHED, ThroughputRow, model_names, read_throughputs
from ipusim.app.fidelity.throughputs import prepare, prepare_rows, simulate_rows
from ipusim.app.scenario import load_job
from ipusim.app.study.full_pipeline import NeverFullError
from ipusim.base.csv_table import csv_bytes
from ipusim.base.errors import FileError
from ipusim.hardware.rates import DEFAULT_RATES, RATES
from ipusim.runs.error_ranges import COLUMNS, RANGES, error_words, range_words
from ipusim.runs.execute import execute
from tests.cli.commands import answer, ipusim, refusal
from tests.cli.pages import PAGES
from tests.effort import rarest
from tests.scenarios import SCENARIOS

OWN = "rows.csv"
HEADER = "model,machine,ipus,micro_batch,count,items_per_s\n"
SMALL = """\
# A pipeline of three stages
# that takes no time to simulate.
system: {name: m2000, host: {framework: popart}}
pipeline:
  schedule: SCHEDULE
  gradient_accumulation_count: 6
  repeat_count: 2
  stages:
    - {name: a, forward: 100000, backward: 200000, update: 5000, output_bytes: 4 KiB}
    - {name: b, forward: 120000, backward: 210000, update: 5000, output_bytes: 4 KiB}
    - {name: c, forward: 90000, backward: 190000, update: 5000, gradient_bytes: 4 KiB}
"""


def intervals(rows):
    """The interval of each kind, as a table of errors has them; None with too few rows, or equal errors."""
    widening = widening_factor(rows)
    return {kind: Interval.from_rows(group, widening) for kind, group in rows_by_kind(rows).items()}


@pytest.fixture(scope="module")
def simulated(validate):
    rows = validate.found.throughputs
    assert [each.row for each in rows] == [*read_throughputs(PUBLISHED)]
    return rows


@pytest.fixture
def small(tmp_path):
    def row(schedule="grouped", **changes):
        path = tmp_path / "small.yaml"
        path.write_text(SMALL.replace("SCHEDULE", schedule))
        values = {"framework": "", "machine": "m2000", "ipus": 4, "micro_batch": 1, "count": 7, "items": 1.0}
        return ThroughputRow(model="small.yaml", scenario=path, items_per_s=1e3, **values | changes)

    return row


def test_a_row_of_each_model_and_framework_is_as_on_the_page():
    """That of fewest IPUs; ``--every`` simulates all rows, and holds what is said of them."""
    rows = sorted(read_throughputs(PUBLISHED), key=lambda row: -row.ipus)
    chosen = {(row.model, row.framework): row for row in rows}
    table = throughput_table(simulate_rows(prepare_rows([*chosen.values()])))
    assert len(table.rows) >= 20
    for cells in table.rows:
        assert f"| {' | '.join(cells[:8])} |" in PAGES["reports/fidelity.md"], "run python -m reports"


def mean_and_worst(rows):
    errors = [abs(each.reported_error) for each in rows]
    return sum(errors) / len(errors), max(errors)


def test_trainings_of_bert_and_resnet_are_within_four_and_ten_per_cent_with_their_source_in_no_fit(simulated):
    """On one pod: BERT's pre-training and fine-tuning, and ResNet-50; clocks of whole trainings have their start in."""
    judged = [each for each in simulated if each.row.use == "fitted" and each.row.ipus <= 64]
    kinds = {each.training.kind for each in judged}
    assert kinds == {"BERT, pre-training", "BERT, fine-tuning", "ResNets"}
    assert all(each.reported_error == each.unseen_error for each in judged)
    assert len(judged) >= 50
    mean, worst = mean_and_worst(judged)
    assert mean <= 0.03
    assert worst <= 0.1
    sources = {source_of(each.row.source) for each in simulated if each.row.use == "fitted"}
    assert all((each.unseen_items_per_s is None) == (source_of(each.row.source) not in sources) for each in simulated)


def test_four_of_five_errors_lie_in_the_range_of_other_sources(simulated):
    """Of kinds of which other sources have three rows or more."""
    inside = []
    for rows in rows_by_kind(simulated).values():
        for one in rows:
            others = [other for other in rows if source_of(other.row.source) != source_of(one.row.source)]
            found = Interval.from_rows(others, widening_factor(simulated))
            if found is not None:
                low, high = found.ends
                inside.append(low <= one.reported_error <= high)
    assert len(inside) > 50
    assert 0.75 <= sum(inside) / len(inside) <= 0.9


def test_a_range_is_as_narrow_as_its_rows_allow(simulated):
    """At most 8 % to either side for BERT's pre-training on one pod, 15 % for its fine-tuning; few rows give none."""
    ranges = intervals(simulated)
    half = {kind: (found.ends[1] - found.ends[0]) / 2 for kind, found in ranges.items() if found is not None}
    assert half["BERT, pre-training"] <= 0.08
    assert half["BERT, fine-tuning"] <= 0.15
    kinds = rows_by_kind(simulated)
    assert {kind for kind, found in ranges.items() if found is None} == {kind for kind in kinds if len(kinds[kind]) < 3}


def test_the_range_of_a_kind_is_a_prediction_interval_of_the_logarithms(simulated):
    """Drawn from a normal distribution, four of five further errors lie in it, whatever the number of rows."""
    first = next(each for each in simulated if each.unseen_items_per_s is None and each.row.band is None)
    rng = np.random.default_rng(5)
    for number in (3, 8):
        inside = []
        for _ in range(600):
            drawn = [
                replace(
                    first,
                    training=replace(first.training, row=replace(first.row, items_per_s=first.items_per_s / ratio)),
                )
                for ratio in np.exp(rng.normal(0.1, 0.05, number + 1))
            ]
            *rows, further = drawn
            low, high = Interval.from_rows(rows).ends
            inside.append(low <= further.reported_error <= high)
        assert np.mean(inside) == pytest.approx(0.8, abs=0.05)
    assert Interval.from_rows(rows[:2]) is None


def test_every_source_is_left_out_of_the_fit_that_its_rows_are_judged_by(validate):
    """A row that says nonsense moves the errors of other sources' rows, and none of its own source's."""
    prepared = [
        each.training
        for each in validate.found.throughputs
        if each.row.model.startswith("bert_large") and each.row.use == "fitted"
    ]
    rows = [each.row for each in prepared]
    prepared.append(replace(prepared[0], row=replace(rows[0], items_per_s=rows[0].items_per_s / 2)))
    found = simulate_rows(prepared)
    with_it, without = with_sources_left_out(found), with_sources_left_out(found[:-1])
    own = source_of(rows[0].source)
    for row, one, other in zip(rows, with_it, without, strict=False):
        assert one is not None
        assert other is not None
        assert (one == pytest.approx(other, rel=1e-12)) == (source_of(row.source) == own), row


def test_the_readme_says_how_far_off_they_are_as_the_page_does():
    """The page's sentences are those of a validation of all rows, which ``--every`` holds."""
    words = " ".join(PAGES["README.md"].split())
    trainings, products = re.findall(
        r"^- (Throughputs of whole .*|Dense products: .*)$", PAGES["reports/fidelity.md"], re.M
    )
    uses = ("fitted", "held", "incomplete", "small", "input", "pods")
    judged, means, *others = trainings.split(". ")
    found = dict(zip(uses, (judged, *others), strict=True))
    numbers = {use: re.findall(r"(\d+\.\d%) (?:off on average|at worst)", text) for use, text in found.items()}
    mean, worst = numbers["fitted"]
    assert f"times of BERT and ResNet-50 on one pod are {mean} off on average and {worst} at worst" in words
    assert (float(mean[:-1]) <= 3.0, float(worst[:-1]) <= 10) == (True, True)
    assert all(float(numbers[use][1][:-1]) <= most for use, most in (("incomplete", 60), ("pods", 15)))
    by_kind = dict(re.findall(r"([A-Z][\w, -]+?) (\d+\.\d%)", means.partition(": ")[2]))
    tuning = by_kind["BERT, fine-tuning"]
    training = by_kind["BERT, pre-training"]
    assert f"BERT's pre-training is {training} off on average, its fine-tuning {tuning}" in words
    unlike = max((numbers[use][1] for use in ("held", "incomplete")), key=lambda text: float(text[:-1]))
    small, pods, bound = (numbers[use][1] for use in ("small", "pods", "input"))
    assert (
        f"by up to {small} for small networks, {unlike} for models unlike BERT and ResNet, {pods} on several pods,"
        in words
    )
    assert "(gpt2, PyTorch, pod16, too fast)" in found["input"]
    assert f"and {bound} where the host may be the bottleneck, as with GPT-2." in words
    worst = max(re.findall(r"(\d+\.\d%) with its size left out", products))
    assert f"Products of matrices are {worst} off at worst, with rates fitted to other sizes" in words


def test_trainings_on_several_pods_are_a_kind_of_their_own(simulated):
    several = [each for each in simulated if each.row.ipus > 64 and each.row.model.startswith("bert")]
    words = error_words(load_job(SCENARIOS / "bert_large.yaml", ["system.name=pod128", "system.auto_select_ipus=128"]))
    kind = f"estimated from {len(several)} published pre-trainings of BERT on several pods"
    found = range_words(*intervals(simulated)[several[0].training.kind].ends)
    assert words == f"{found}, in 4 of 5 cases ({kind})"


def test_bert_of_few_micro_batches_lacks_as_long_a_time_for_each_update_on_one_pod_as_on_several(simulated):
    """Three editions of MLPerf on 64 to 256 IPUs, their state on chip, were an optimizer sent in no time."""
    large = [each for each in simulated if each.row.model == "bert_large_512" and each.row.ipus >= 64]
    assert sorted(each.row.ipus for each in large) == [64, 64, 64, 128, 128, 256]
    sent = DEFAULT_RATES.with_values(optimizer_value_ns=Fraction(0))
    lacking = [each.seconds_published - each.with_rates(sent).seconds for each in large]
    assert min(lacking) > 0.1
    assert max(lacking) < 0.2


def test_fine_tuning_in_pytorch_lacks_an_equal_time_for_each_value_that_either_program_sends(simulated):
    """Graphcore's SQuAD sends 3 values for each of 390 variables, its tutorial 4, the Trainer's RoBERTa 5 of 198."""
    tuned = [each for each in simulated if each.training.kind == "BERT, fine-tuning" and each.row.use == "fitted"]
    pytorch = [each for each in tuned if each.row.framework == "pytorch"]
    sent = DEFAULT_RATES.with_values(pytorch_optimizer_value_ns=Fraction(0))
    values = {"Graphcore performance results": 3 * 390, "Hugging Face": 5 * 198, "Graphcore tutorials": 4 * 390}
    updates = [each.time.job.request.options.pipeline.repeat_count for each in pytorch]
    without = [each.with_rates(sent).seconds for each in pytorch]
    lacking = [
        (each.seconds_published - seconds) * number
        for each, seconds, number in zip(pytorch, without, updates, strict=True)
    ]
    sent_values = [values[source_of(each.row.source)] for each in pytorch]
    shares = [seconds / number for seconds, number in zip(lacking, sent_values, strict=True)]
    assert len(shares) == 5
    assert 70e-6 < min(shares) <= max(shares) < 95e-6
    errors = [abs(each.reported_error) for each in tuned]
    assert sum(errors) / len(errors) < 0.031
    assert max(errors) < 0.08


def test_a_row_within_a_range_is_not_off_and_one_beyond_by_the_nearest_end(small, tmp_path):
    simulated = simulate_rows(prepare_rows([small()]))[0].items_per_s
    for low, high, expected in ((0.9, 1.2, 0), (1.25, 2, -0.2), (0.25, 0.5, 1)):
        path = tmp_path / "own.csv"
        path.write_text(HEADER + f"small.yaml,m2000,4,1,7,{low * simulated!r}-{high * simulated!r}\n")
        (read,) = read_throughputs(path)
        (found,) = simulate_rows(prepare_rows([read]))
        assert found.error == pytest.approx(expected, abs=1e-9)
    path.write_text(HEADER + "small.yaml,m2000,4,1,7,1e-3-5e-3\nsmall.yaml,m2000,4,1,7,2e-3\n")
    assert [(each.band, each.items_per_s) for each in read_throughputs(path)] == [
        ((0.001, 0.005), pytest.approx(5**0.5 / 1000)),
        (None, pytest.approx(0.002)),
    ]
    path.write_text(HEADER + "small.yaml,m2000,4,1,7,200-100\nsmall.yaml,m2000,4,1,7,1-2-3\n")
    with pytest.raises(FileError) as caught:
        read_throughputs(path)
    first, second = str(caught.value).splitlines()
    assert first.endswith("expected a range such as 100-120, the smaller value first, got '200-100'")
    assert second.endswith("expected a number above 0, got '1-2-3'")


def test_the_host_fills_its_buffers_before_the_first_update_of_a_session_run_alone(tmp_path):
    """A row of 100 updates takes as long for each as a run of 100 does, and less than one alone."""
    path = SCENARIOS / "mnist_cnn.yaml"
    alone = ("pipeline.schedule=single", "pipeline.splits=[]", "pipeline.gradient_accumulation_count=1")
    seconds = []
    for count in (1, 100):
        settings = (*alone, f"pipeline.repeat_count={count}")
        row = ThroughputRow("mnist_cnn", path, "", "m2000", 1, 64, 1, 1.0, 3e5, settings=settings)
        (each,) = simulate_rows(prepare_rows([row]))
        run = execute(load_job(path, ["system.auto_select_ipus=1", *settings])).summary
        assert each.items_per_s == pytest.approx(run.throughput.samples_per_s, rel=1e-9)
        seconds.append(64 / each.items_per_s)
    assert seconds[0] > 1.1 * seconds[1]


@rarest
def test_what_no_rate_explains_is_said_and_a_fit_brings_a_larger_pod_nearer(tmp_path):
    """The Conformer's model lacks parts: its rows of 4 and 16 IPUs take a rate to its edge, and help that of 64."""
    header, *lines = PUBLISHED.read_text().splitlines()
    of = [line for line in lines if line.startswith("conformer,")]
    small = [line for line in of if ",m2000," in line or ",pod16," in line]
    (large,) = [line for line in of if ",pod64," in line]
    (tmp_path / "rows.csv").write_text("\n".join([header, *small]))
    names = "vector_slowdown"
    done = ipusim("validate", "--fit", "rows.csv", "--rates", names, "--out", "fitted.yaml", cwd=tmp_path)
    assert "vector_slowdown would leave its range: another cause explains the rows." in done.stdout
    scenario = (SCENARIOS / "conformer.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(f"{scenario}\nrates: fitted.yaml\n")
    (tmp_path / "plain.yaml").write_text(scenario)
    rows = [large.replace("conformer,", f"{name}.yaml,", 1) for name in ("mine", "plain")]
    (tmp_path / "large.csv").write_text("\n".join([header, *rows]))
    fitted, plain = simulate_rows(prepare_rows(read_throughputs(tmp_path / "large.csv")))
    assert 0 < fitted.error < 0.7 * plain.error


def test_the_rates_in_use_are_those_that_the_rows_give(simulated):
    rates, counts = fitted_rates(simulated)
    for name, value in rates.items():
        rate = next(rate for rate in RATES if rate.attribute == name)
        assert value == pytest.approx(float(rate.default), rel=0.01)
        assert not rate.at_edge(value)
    assert min(counts.values()) >= 2, "no rate for a single row"


def test_the_deviations_of_the_fit_are_the_most_likely_for_its_rows(simulated):
    """A program's rows share an error: the likelihood integrates over the rates, whose priors are the fit's."""
    rows = [each for each in simulated if each.row.use == "fitted"]
    described = [next(rate for rate in RATES if rate.attribute == name) for name in FIT_RATES]
    middles, widths = np.array(
        [[(low + high) / 2, high - low] for low, high in (rate.plausible for rate in described)]
    ).T
    defaults = np.array([float(rate.default) for rate in described])
    effects = np.array(
        [
            [each.with_rates(each.training.rates.with_values(**{name: Fraction(0)})).seconds for name in FIT_RATES[:3]]
            for each in rows
        ]
    )
    seconds, published = (np.array([getattr(each, name) for each in rows]) for name in ("seconds", "seconds_published"))
    layouts = [each.training.variables / each.training.jobs[0].system.clock_hz for each in rows]
    slopes = np.column_stack([(seconds[:, None] - effects) / defaults[:3], layouts]) / published[:, None]
    errors = 1 - seconds / published - slopes @ (middles - defaults).astype(float)
    programs = np.array([f"{each.row.model}, {each.row.framework}" for each in rows])
    shared = programs[:, None] == programs
    by_rates = slopes @ np.diag((widths / 4).astype(float) ** 2) @ slopes.T

    def surprise(program_spread, row_spread):
        covariance = by_rates + program_spread**2 * shared + row_spread**2 * np.eye(len(rows))
        return np.linalg.slogdet(covariance)[1] / 2 + errors @ np.linalg.solve(covariance, errors) / 2

    steps = np.linspace(0.5, 1.5, 21)
    found = {(x, y): surprise(x * PROGRAM_SPREAD, y * ROW_SPREAD) for x in steps for y in steps}
    assert min(found, key=found.__getitem__) == (pytest.approx(1, abs=0.1), pytest.approx(1, abs=0.1))
    assert found[1, 1] < surprise(1e-9, 0.032) - 4, "rows whose errors have nothing in common are far less likely"


def test_no_fitted_rate_is_at_an_end_of_what_is_plausible():
    fitted = [rate for rate in RATES if rate.is_fitted]
    assert len(fitted) <= 8
    assert not [rate.name for rate in fitted if rate.at_edge(rate.default)]


def test_a_run_says_how_far_off_models_of_its_kind_are(simulated, validate):
    """The file that runs read is what the published rows give; its kinds are told by layers, or there is none."""
    rows = validate.found.throughputs
    lines = [COLUMNS]
    for (kind, group), interval in zip(rows_by_kind(rows).items(), intervals(rows).values(), strict=True):
        ends = ("", "") if interval is None else (f"{end:.5f}" for end in interval.ends)
        lines.append((kind, len(group), *ends))
    assert RANGES.read_bytes() == csv_bytes(lines)
    kinds = {each.row.model: each.training.kind for each in simulated if each.row.ipus <= 64}
    assert kinds == {
        **dict.fromkeys(("bert_large", "bert_base", "bert_large_512"), "BERT, pre-training"),
        **dict.fromkeys(("squad_large", "squad_base"), "BERT, fine-tuning"),
        **dict.fromkeys(("mnist_cnn", "small_cnn", "mnist_mlp"), "small networks"),
        **{"gpt2": "GPT", "conformer": "Conformers", "resnet50": "ResNets", "vit": "vision transformers"},
        **{"resnext101": "grouped convolutions", "efficientnet_b4": "grouped convolutions", "unet": "U-Nets"},
    }
    bert, interval = (of["BERT, pre-training"] for of in (rows_by_kind(simulated), intervals(simulated)))
    found = range_words(*interval.ends)
    words = error_words(load_job(SCENARIOS / "bert_large.yaml"))
    assert words == f"{found}, in 4 of 5 cases (estimated from {len(bert)} published pre-trainings of BERT)"
    assert error_words(load_job(MODELS / "unet.yaml")) == "not known: only 1 published training of this kind (U-Nets)"
    given = load_job(SCENARIOS / "schedules_four_ipus.yaml")
    assert error_words(given) == "not known: no training of a model of this kind is published"


def test_a_rate_is_felt_as_much_as_running_with_it_says(simulated):
    frameworks = {each.row.framework: each.training for each in reversed(simulated)}
    prepared, other = frameworks["popart"], frameworks["pytorch"]
    table = sensitivity_table([prepared, other])
    felt = {row[0]: float(row[-1].split()[0]) for row in table.rows}
    assert set(felt) >= {rate.name for rate in RATES if rate.is_fitted}, "a row for each"
    assert -0.1 < felt["pytorch_offchip_state"] < -0.01
    assert -0.02 < felt["pytorch_optimizer_value"] < -0.002
    assert -0.005 < felt["offchip_stream"] < -0.003
    assert 0.3 < felt["amp_ceiling"] < 0.5
    rates = DEFAULT_RATES.with_values(vector_slowdown=DEFAULT_RATES.vector_slowdown * Fraction(101, 100))
    slower = simulate_rows([prepared], rates)[0].items_per_s / simulated[0].items_per_s - 1
    assert felt["vector_slowdown"] == pytest.approx(100 * slower, abs=1e-3)
    assert "at its edge" not in str(table.rows)


@pytest.mark.parametrize("schedule", ["grouped", "interleaved", "sequential", "1f1b"])
def test_time_at_any_count_is_carried_on_to_the_cycle(small, schedule):
    row = small(schedule)
    time = prepare(row).time()
    assert (time.job.program.repeat_count, time.job.system.learners) == (2, 1)
    for count in (30, 42):
        job = load_job(row.scenario, (*row.overrides, f"pipeline.gradient_accumulation_count={count}", "steps=1"))
        whole = execute(job).summary.execution_cycles / job.system.clock_hz
        assert time.seconds(count) == pytest.approx(whole, rel=1e-12)


def test_the_host_counts_once_in_a_session_run(small):
    with_host, without = (simulate_rows(prepare_rows([small(framework=name)]))[0] for name in ("popart", ""))
    row = with_host.row
    host = float(DEFAULT_RATES.session_run_ns / 10**9)
    items = row.micro_batch * row.count * with_host.time.job.system.learners
    assert items / with_host.items_per_s - items / without.items_per_s == pytest.approx(host / 2)
    host_left = with_host.seconds_published - without.time.seconds(row.count)
    as_left = DEFAULT_RATES.with_values(session_run_ns=Fraction(2 * host_left * 1e9))
    again = simulate_rows(prepare_rows([row]), as_left)[0]
    assert again.items_per_s == pytest.approx(row.items_per_s)


def test_a_row_of_several_hosts_counts_the_samples_of_all(small):
    row = replace(small(count=30), settings=("system.host.count=3",))
    found = simulate_rows(prepare_rows([row]))[0]
    job = load_job(row.scenario, (*row.overrides, "pipeline.gradient_accumulation_count=30", "steps=1"))
    run = execute(job).summary
    assert (found.time.job.system.learners, run.throughput.effective_batch_size) == (3, 90)
    assert found.items_per_s == pytest.approx(90 * run.clock_hz / run.execution_cycles, rel=1e-12)


def test_other_rates_reprice_what_was_laid_out_once(small):
    prepared = prepare(small())
    slower = prepared.time(DEFAULT_RATES.with_values(beyond_pair_exchange_ns=Fraction(10**6)))
    assert slower.micro_batch - prepared.time().micro_batch == pytest.approx(1e-3 - 2.4e-6, rel=1e-3)


def test_rows_that_are_laid_out_together_take_what_each_takes_by_itself(small):
    """What one has in common with another is made once, and nothing else."""
    schedules = (), ("pipeline.schedule=1f1b",)
    rows = [small(machine=machine, settings=each) for machine in ("m2000", "bow2000") for each in schedules]
    rates = DEFAULT_RATES.with_values(link_efficiency=Fraction(1, 2))
    together, alone = prepare_rows(rows), [prepare(row) for row in rows]
    assert [each.cycles for each in together] == [each.cycles for each in alone]
    times, times_alone = ([each.time(rates) for each in prepared] for prepared in (together, alone))
    for time, time_alone in zip(times, times_alone, strict=True):
        assert (time.fixed, time.micro_batch) == (time_alone.fixed, time_alone.micro_batch)
        assert (time.host, time.rates) == (time_alone.host, time_alone.rates)
    assert len({time.micro_batch for time in times}) == 4


def test_a_time_that_never_grows_evenly_is_refused(small, monkeypatch):
    calls = iter(range(10**6))
    monkeypatch.setattr("ipusim.app.fidelity.throughputs.update_cycles", lambda *_: next(calls) ** 2)
    expected = "expected a time that grows by an equal step per 6 micro-batches, got unequal steps up to a gradient"
    with pytest.raises(NeverFullError, match=expected):
        prepare(small())


def test_a_pipeline_that_repeats_itself_after_a_few_micro_batches_is_carried_on(small):
    """1F1B point-to-point: an IPU's turn takes two micro-batches where sends are waited for."""
    row = replace(small("1f1b"), settings=("pipeline.sync=point_to_point", "pipeline.stages.0.output_bytes=4 MiB"))
    found = prepare(row)
    job = load_job(row.scenario, [*row.overrides, "steps=1", "pipeline.gradient_accumulation_count=64"])
    once = replace(job, steps=1, program=replace(job.program, repeat_count=1))
    cycles = execute(once).summary.execution_cycles
    assert found.time().seconds(64) == pytest.approx(cycles / job.system.clock_hz, rel=0.005)


def test_a_row_that_does_not_fit_says_so(own):
    rows = own(HEADER + "bert_large,bow_pod16,16,64,60,100\n")
    assert answer("validate", "--rows", rows, columns="").count("does not fit") == 2
    rows = own(HEADER.replace("\n", ",settings\n") + "bert_large,bow_pod16,16,64,60,100,memory=error\n")
    refused = refusal("validate", "--rows", rows, columns="")
    assert refused.startswith(f"{rows}:2: bert_large: ")
    assert "Out of memory on IPU" in refused


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("pipeline.gradient_accumulation_count=10", "column settings: expected keys not given by "),
        ("steps=4", "column settings: expected keys not given by "),
        ("system.name=m2000", "column settings: expected keys not given by "),
        ("foo.x=1", "bert_large: foo"),
    ],
)
def test_a_setting_that_a_column_says_or_a_scenario_refuses_is_refused_at_its_row(setting, told, own):
    rows = own(HEADER.replace("\n", ",settings\n") + f"bert_large,bow_pod16,16,8,60,100,{setting}\n")
    refused = refusal("validate", "--rows", rows, columns="")
    assert refused.startswith(f"{rows}:2: {told}")
    assert "--set" not in refused


def test_own_rows_are_held_without_fitting_anything(tmp_path):
    (tmp_path / "mine.yaml").write_text(SMALL.replace("SCHEDULE", "grouped"))
    rows = tmp_path / "rows.csv"
    rows.write_text(HEADER + "mine.yaml,m2000,4,1,100,4000\nbert_base,bow_pod16,16,32,512,16391\n")
    done = answer("validate", "--rows", str(rows), "--out", str(tmp_path / "out"), columns="")
    assert done.startswith("Throughputs of whole trainings: 2, ")
    assert "Nothing was fitted to these rows." in done
    assert "Errors of throughputs" in done
    assert "Dense products" not in done
    assert sorted(each.name for each in (tmp_path / "out").glob("t*")) == ["throughputs.csv", "throughputs.png"]
    written = list(csv.DictReader(io.StringIO((tmp_path / "out" / "throughputs.csv").read_text())))
    assert [row["model"] for row in written] == ["mine.yaml", "bert_base"]
    assert float(written[0]["error"]) == pytest.approx(float(written[0]["simulated_items_per_s"]) / 4000 - 1, abs=1e-4)
    height, width, _ = matplotlib.image.imread(tmp_path / "out" / "throughputs.png").shape
    assert width > 1.5 * height > 600


def test_own_rows_of_equal_errors_have_no_range_and_are_held_as_own_rows(own):
    """Three of a source, published as what is simulated; no width follows from them."""
    header = HEADER.replace("\n", ",use,source\n")
    lines = [f"bert_base,bow_pod16,16,32,512,10000,fitted,{source}\n" for source in "ab" for _ in range(3)]
    rows = own(header + "".join(lines))
    done = answer("validate", "--rows", str(rows), columns="")
    assert "not known" in done
    assert "of BERT and ResNet-50 on one pod" not in done


def test_all_that_is_wrong_with_rows_is_told_at_once(own):
    path = own(HEADER + "nowhere.yaml,m200,4.5,0,x,-1\n")
    with pytest.raises(FileError) as caught:
        read_throughputs(path)
    assert str(caught.value).splitlines() == [
        f"{path}:2: column model: expected {', '.join(model_names())} or the path of a scenario, got 'nowhere.yaml'",
        f"{path}:2: column machine: expected a system such as m2000 or bow_pod16, got 'm200'; did you mean m2000?",
        f"{path}:2: column ipus: expected a whole number from 1 to 10000000, got '4.5'",
        f"{path}:2: column micro_batch: expected a whole number from 1 to 10000000, got '0'",
        f"{path}:2: column count: expected a whole number from 1 to 10000000, got 'x'",
        f"{path}:2: column items_per_s: expected a number above 0, got '-1'",
    ]
    assert "expected a system such as m2000" in refusal("validate", "--rows", str(path))
    path.write_text(HEADER.replace("items_per_s", "items_per_s,framework") + "bert_large,bow_pod16,16,8,20,5,jax\n")
    with pytest.raises(FileError, match=r"column framework: expected popart, tensorflow1, .* or nothing, got 'jax'"):
        read_throughputs(path)
    path.write_text(HEADER)
    with pytest.raises(FileError, match="expected from 1 to 10000 rows"):
        read_throughputs(path)
