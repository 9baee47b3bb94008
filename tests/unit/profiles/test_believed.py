"""What files say of themselves is believed, and told: parts, nesting, contradictions, steps that are unlike."""

import json

import pytest

from ipusim.app.profiles.read import read_measured
from ipusim.app.profiles.stages import stages_of
from ipusim.base.errors import FileError


def event(name, ts, dur, pid=1, tid=1, **others):
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, **others}


@pytest.fixture
def trace(tmp_path):
    def write(*events, name="a.json", info=None):
        path = tmp_path / name
        path.write_text(json.dumps({"traceEvents": [*events]} | ({"distributedInfo": info} if info else {})))
        return path

    return write


@pytest.fixture
def log(tmp_path):
    def write(*lines, name="a.log"):
        path = tmp_path / name
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    return write


def block(iteration, *forward, batch=16):
    head = f" iteration {iteration:8}/ 100 | elapsed time per iteration (ms): 90.0 | global batch size: {batch:5} |"
    times = [f"     rank {rank:2}: {ms}" for rank, ms in enumerate(forward)]
    return [head, "times across ranks (ms):", "  forward-compute:", *times, "  backward-compute:", *times]


def medians(stages):
    return [tuple(float(figure.median) for figure in figures.values()) for figures in stages.stages.values()]


PARTS = ["forward=attn(F)+mlp(F)", "backward=attn(B)+mlp(B)"]


def test_a_pass_of_parts_is_their_sum_until_another_pass_begins(trace):
    """A chunk of two layers: attn, mlp, attn, mlp forward, then backward, for two micro-batches."""
    events = []
    for number in range(2):
        for layer in range(2):
            events += [
                event("attn(F)", 1000 * number + 100 * layer, 4),
                event("mlp(F)", 1000 * number + 100 * layer + 50, 6),
            ]
            events += [
                event("mlp(B)", 1000 * number + 500 + 100 * layer, 9),
                event("attn(B)", 1000 * number + 550 + 100 * layer, 8),
            ]
    stages = stages_of(read_measured([trace(*events)], PARTS))
    assert medians(stages) == [(20, 34)]
    assert "A forward pass is the sum of 2 attn(F) and 2 mlp(F)." in stages.notes
    interleaved = sorted(events, key=lambda said: said["ts"] % 500)
    for place, said in enumerate(interleaved):
        said["ts"] = place * 20
    with pytest.raises(
        FileError,
        match=r"expected the same parts in every .* pass, got .*: set the number of spans of a pass with --parts",
    ):
        read_measured([trace(*interleaved)], PARTS)
    assert medians(stages_of(read_measured([trace(*interleaved)], PARTS, parts=4))) == [(20, 34)]


def test_a_forward_pass_inside_backward_is_recomputation_and_a_receive_inside_it_a_wait(trace):
    path = trace(
        event("Forward 0", 0, 10),
        event("Backward 0", 100, 60),
        event("gloo:recv", 101, 25),
        event("c10d::recv_", 105, 20),
        event("Forward 0", 130, 9),
    )
    stages = stages_of(read_measured([path]))
    assert medians(stages) == [(10, 35)]
    assert f"{path}: 1 receive inside passes: subtracted from their time." in stages.notes
    assert "Recomputation takes 15% of the time of backward passes." in stages.notes
    with pytest.raises(
        FileError, match="expected passes side by side, got one of backward within one of forward, at 1 us"
    ):
        read_measured([trace(event("Forward 0", 0, 10), event("Backward 0", 1, 5))])


def test_a_receive_that_is_posted_before_its_pass_is_a_wait_of_the_pass_in_which_it_ends(trace):
    path = trace(
        event("PP:0F0", 0, 10),
        event("gloo:recv", 5, 112),  # posted in another pass, which does not wait for it
        event("PP:0F1", 20, 10),
        event("gloo:recv", 95, 20),  # at once with the other: counted once
        event("PP:0B0", 100, 40),
        event("gloo:recv", 130, 50),  # ends in no pass
        event("PP:0B1", 200, 25),
    )
    stages = stages_of(read_measured([path]))
    figures = stages.stages["0"]
    assert [figures[what].least for what in ("forward", "backward")] == [10, 23]
    assert figures["backward"].most == 25
    assert f"{path}: 1 receive inside passes: subtracted from their time." in stages.notes


def test_overlapped_pairs_are_told_and_in_no_median(trace):
    path = trace(event("PP:0F0", 0, 10), event("PP:(0F1;0B0)OVERLAP_F_B", 20, 50), event("PP:0B1", 90, 20))
    stages = stages_of(read_measured([path]))
    assert (medians(stages), stages.count) == ([(10, 20)], 2)
    assert any(
        note.startswith("1 overlapped pair of a forward and a backward pass are in no median") for note in stages.notes
    )


def test_a_first_step_that_warms_up_is_left_out_and_told(trace):
    events = []
    for step, slow in enumerate([5, 1, 1]):
        events += [event(f"Forward {n}", 1000 * step + 100 * n, 10 * slow) for n in range(2)]
        events += [
            event("Optimizer.step#SGD.step", 1000 * step + 500, 4),
            event("Optimizer.step#SGD.step", 1000 * step + 510, 3),
        ]
    stages = stages_of(read_measured([trace(*events)]))
    assert medians(stages) == [(10, 7)]
    assert stages.stages["0"]["forward"].count == 4
    assert any("passes of the first step took 5 times as long" in note for note in stages.notes)


@pytest.mark.parametrize(
    ("events", "info", "said"),
    [
        (
            [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "rank 3"}}],
            {"rank": 2, "world_size": 4},
            "process_name of process 1: expected rank 2, as in {}: distributedInfo, got 3",
        ),
        (
            [
                {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "rank 3"}},
                {"ph": "M", "name": "process_labels", "pid": 1, "args": {"labels": "rank 1"}},
            ],
            None,
            "process_labels of process 1: expected rank 3, as in {}: process_name of process 1, got rank 1",
        ),
        ([], {"rank": 4, "world_size": 4}, "distributedInfo: expected 4 ranks, got rank 4"),
    ],
)
def test_a_rank_that_a_file_contradicts_is_refused_with_both_places(trace, events, info, said):
    path = trace(*events, event("Forward 0", 0, 1), info=info)
    with pytest.raises(FileError) as no:
        stages_of(read_measured([path]))
    assert str(no.value).endswith(f"{path}: {said.format(path)}")


def test_the_pipelines_group_of_ranks_says_the_stage(trace):
    """Ranks 0 and 2 are one pipeline, 1 and 3 the other: data parallelism is innermost."""
    files = [
        trace(
            event("Forward 0", 0, 10 + rank),
            name=f"{rank}.json",
            info={
                "rank": rank,
                "world_size": 4,
                "pg_config": [
                    {"pg_desc": "default_pg", "ranks": [0, 1, 2, 3]},
                    {"pg_desc": "mesh_pp", "ranks": [rank % 2, rank % 2 + 2]},
                ],
            },
        )
        for rank in range(4)
    ]
    assert medians(stages_of(read_measured(files))) == [(10.5,), (12.5,)]
    assert medians(stages_of(read_measured(files[::2]))) == [(10,), (12,)]


def test_one_rank_of_four_is_refused_and_two_are_said_to_be_a_replica(trace):
    files = [trace(event("Forward 0", 0, 10), name=f"{n}.json", info={"rank": n, "world_size": 4}) for n in range(2)]
    with pytest.raises(
        FileError, match=r"got none of rank 1, 2 and 3 of world_size 4, which .* says: import these too, or"
    ):
        stages_of(read_measured(files[:1]))
    assert len(stages_of(read_measured(files[:1]), 1).stages) == 1
    assert "assumed to be one replica of 2" in stages_of(read_measured(files)).sources[0][4]


def test_processes_that_begin_in_another_order_than_their_numbers_are_refused(trace):
    path = trace(event("Forward 0", 50, 10, pid=3), event("Forward 0", 0, 10, pid=9))
    with pytest.raises(FileError, match="got 0 us: the order of ranks was assumed; name processes 'rank 0'"):
        stages_of(read_measured([path]))
    named = [{"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": -pid % 5}} for pid in (3, 9)]
    found = stages_of(
        read_measured([trace(event("Forward 0", 50, 10, pid=3), event("Forward 0", 0, 11, pid=9), *named)])
    )
    assert medians(found) == [(11,), (10,)]
    assert found.sources[0][4].startswith("ranks inferred from process_sort_index; ")


SIZES = ["pipeline_model_parallel_size ..... 2", "setting number of microbatches to constant 4"]


def test_facts_of_a_log_that_contradict_each_other_are_refused_with_both_places(log, refused):
    path = log(*SIZES, "> initialized pipeline model parallel with size 4", *block(1, 8, 8))
    refused(FileError, f"{path}:3: expected 2 pipeline stages, as in {path}:1, got 4", lambda: read_measured([path]))
    path = log(*SIZES, *block(1, 8, 8), "     rank  0: 9.00")
    with pytest.raises(
        FileError, match=rf"^{path}:11: expected one time of rank 0 for backward-compute in an iteration"
    ):
        read_measured([path])


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nproc 2 pretrain.py --pipeline-model-parallel-size 2 --encoder-pipeline-model-parallel-size 1",
        "torchrun pretrain.py --pipeline-model-parallel-size=2",
        "0:   pipeline_model_parallel_size: 2",
        "[default0]:using world size: 2, data-parallel-size: 1, tensor-model-parallel size: 1, "
        "pipeline-model-parallel size: 2",
    ],
)
def test_a_head_states_the_stages_as_options_yaml_or_a_line_and_other_groups_do_not(log, line):
    others = ["init_process_group(rank=0, world_size=1)", "TransformerConfig(pipeline_model_parallel_size=1, layers=2)"]
    path = log(line, *others, SIZES[1], *block(1, 8, 16))
    stages = stages_of(read_measured([path]))
    assert medians(stages) == [(2000, 2000), (4000, 4000)]
    assert "stages stated by a.log:1; " in stages.sources[0][4]


def test_a_batch_that_ramps_up_is_counted_by_its_size_or_refused(log):
    lines = [*SIZES, *block(1, 8, 16, batch=16), *block(2, 16, 32, batch=32), *block(3, 16, 32, batch=32)]
    with pytest.raises(
        FileError, match=r"expected 16 samples in batches of 4 micro-batches \(the option count states another"
    ):
        read_measured([log(*lines)])
    stages = stages_of(read_measured([log("micro_batch_size .... 2", "data_parallel_size .... 2", *lines)]))
    assert (medians(stages), stages.count) == ([(2000, 2000), (4000, 4000)], 8)
    assert "Micro-batches of a step differ: 4 in 1, 8 in 2 steps. The medians are of steps with 8." in stages.notes


def test_numbers_in_names_of_files_are_ranks_in_their_order_and_begin_at_0(trace):
    files = [trace(event("Forward 0", 0, 10 + number), name=f"w{number}.json") for number in (10, 2, 1)]
    with pytest.raises(FileError, match=r"got none of rank 0, 3, 4, 5, 6, 7, 8 and 9: import these too, or set"):
        stages_of(read_measured(files))
    assert medians(stages_of(read_measured(files), 3)) == [(11,), (12,), (20,)]
    times = [trace(event("Forward 0", 0, 10 + n), name=f"t{1_700_000_000 - n}.json") for n in range(2)]
    found = stages_of(read_measured(times))
    assert medians(found) == [(11,), (10,)]
    assert found.sources[0][4].startswith("ranks inferred from the number in the name of each file; ")
