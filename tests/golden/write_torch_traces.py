"""Writes traces of training under torch.distributed.pipelining, as its profiler makes them, under torch_traces/.

Run by hand where torch is installed, which is no dependency of ipusim and never in its environment:

    python -m venv /tmp/torch && /tmp/torch/bin/pip install "torch==2.13.0" numpy
    nice -n -20 /tmp/torch/bin/python tests/golden/write_torch_traces.py [RANKS [SCHEDULE...]]

``nice -n -20`` gives the ranks the cores before other programs, and needs root; the script runs without it too. A
real-time class (``chrt -f``) makes passes longer: Linux stops such a program for 50 ms of each second.
Each rank is a process with one thread, and copies go through gloo. Traces are of three steps, behind four that warm up.
Of several tries the fastest is kept, as other programs of the computer lengthen them. What ipusim does not read is left
out: operators, arguments, names of hosts and numbers of processes. Beside the traces stands what each program was, in
``programs.json``: stages of each rank, and passes in their order where torch says it.
"""

import gzip
import json
import os
import re
import sys
import tempfile
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Final

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from torch import distributed, multiprocessing, nn
from torch.distributed.pipelining import PipelineStage, schedules
from torch.profiler import ProfilerActivity, profile, record_function, schedule

FOLDER: Final = Path(__file__).with_name("torch_traces")
#: Of each schedule the stages on a rank.
SCHEDULES: Final = {
    "GPipe": 1,
    "1F1B": 1,
    "LoopedBFS": 2,
    "Interleaved1F1B": 2,
    "InterleavedZeroBubble": 2,
    "ZBVZeroBubble": 2,
    "DualPipeV": 2,
}
#: Schedules whose second stage of a rank is the mirror image of the first.
MIRRORED: Final = ("ZBVZeroBubble", "DualPipeV")
#: Schedules that name no passes, or pairs of passes alone.
WITHOUT_NAMES: Final = ("1F1B", "DualPipeV")
#: Passes take 50 ms and more, so that copies and Python's time between passes are small beside them.
BATCH, WIDTH, LAYERS = 128, 512, 64
STEPS, WARM_UP, TRIES = 3, 4, {2: 6, 4: 1}
#: Spans that are read.
READ: Final = re.compile(
    r"PP:(\d+[FBIW]\d+|\(.*\)OVERLAP_F_B)|(Forward|Backward) \d+"
    r"|Optimizer\.step#.*|gloo:recv|c10d::recv_|ProfilerStep#\d+"
)


def named(stage: PipelineStage) -> None:
    """Give each pass of a stage a span with the name that torch gives passes elsewhere."""
    index = stage.stage_index

    def wrap(method: str, letter: Any) -> None:
        inner = getattr(stage, method)

        @wraps(inner)
        def outer(micro_batch: int, *args: Any, **options: Any) -> Any:
            with record_function(f"PP:{index}{letter(options)}{micro_batch}"):
                return inner(micro_batch, *args, **options)

        setattr(stage, method, outer)

    wrap("forward_one_chunk", lambda options: "F")
    wrap("backward_one_chunk", lambda options: "B" if options.get("full_backward", True) else "I")
    wrap("backward_weight_one_chunk", lambda options: "W")


def stages_of(name: str, rank: int, ranks: int) -> list[int]:
    """Return the stages of a rank."""
    local = SCHEDULES[name]
    if name in MIRRORED:
        return [rank, 2 * ranks - 1 - rank]
    return [rank + ranks * chunk for chunk in range(local)]


def train(rank: int, names: list[str], ranks: int, folder: str) -> None:
    """Train on one rank under each schedule, and write traces."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    for name in names:
        for number in range(TRIES[ranks]):
            distributed.barrier()
            run(rank, name, ranks, Path(folder, f"{name}_{number}_{rank}"))
    distributed.destroy_process_group()


def run(rank: int, name: str, ranks: int, path: Path) -> None:
    """Train under a schedule, and write the trace and the order of passes."""
    torch.manual_seed(rank)
    own, number = stages_of(name, rank, ranks), ranks * SCHEDULES[name]
    layers = [
        nn.Sequential(*(part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh()))) for _ in own
    ]
    stages = [
        PipelineStage(module, index, number, torch.device("cpu")) for module, index in zip(layers, own, strict=True)
    ]
    if name in WITHOUT_NAMES:
        for stage in stages:
            named(stage)
    make: Any = schedules.get_schedule_class(name)
    multiple = issubclass(make, schedules.PipelineScheduleMulti)
    made = make(stages if multiple else stages[0], count_of(name, ranks), loss_fn=nn.MSELoss())
    optimizer = torch.optim.SGD([one for module in layers for one in module.parameters()], lr=0.01)
    x, y = torch.randn(2, BATCH * count_of(name, ranks), WIDTH)
    with profile(
        activities=[ProfilerActivity.CPU], schedule=schedule(wait=WARM_UP - 1, warmup=1, active=STEPS)
    ) as profiler:
        for _ in range(WARM_UP + STEPS):
            made.step(*([x] if 0 in own else []), **({"target": y} if number - 1 in own else {}))
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    profiler.export_chrome_trace(f"{path}.json")
    order = made.pipeline_order[rank] if multiple else []
    Path(f"{path}.order").write_text(json.dumps([str(action) for action in order if action is not None]))


def count_of(name: str, ranks: int) -> int:
    """Return the micro-batches of a step."""
    return 2 * ranks + 2 * (name == "DualPipeV")


def trimmed(traces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return traces of all ranks with the spans that are read, on one clock that begins with the first of them."""
    spans = [
        [event for event in trace["traceEvents"] if event.get("ph") == "X" and READ.fullmatch(event["name"])]
        for trace in traces
    ]
    first = min(event["ts"] for events in spans for event in events)
    kept = []
    for rank, (trace, events) in enumerate(zip(traces, spans, strict=True)):
        threads = list(dict.fromkeys(event["tid"] for event in events))
        info = {key: trace["distributedInfo"][key] for key in ("backend", "rank", "world_size")}
        own = [
            {key: event[key] for key in ("ph", "cat", "name")}
            | {"pid": rank, "tid": threads.index(event["tid"])}
            | {"ts": round(event["ts"] - first, 3), "dur": event["dur"]}
            for event in events
        ]
        kept.append({"schemaVersion": trace["schemaVersion"], "distributedInfo": info, "traceEvents": own})
    return kept


def write(name: str, ranks: int, folder: Path) -> None:
    """Write the traces of the fastest try of one schedule, and its program."""
    tries = [
        trimmed([json.loads((folder / f"{name}_{number}_{rank}.json").read_text()) for rank in range(ranks)])
        for number in range(TRIES[ranks])
    ]
    traces = min(tries, key=lambda tried: max(each["ts"] + each["dur"] for one in tried for each in one["traceEvents"]))
    for rank, trace in enumerate(traces):
        text = json.dumps(trace, separators=(",", ":")).encode()
        (FOLDER / f"{name}_{ranks}_rank{rank}.json.gz").write_bytes(gzip.compress(text, mtime=0))
    path, programs = FOLDER / "programs.json", dict[str, Any]()
    with suppress(FileNotFoundError):
        programs = json.loads(path.read_text())
    programs[f"{name}_{ranks}"] = {
        "torch": torch.__version__,
        "count": count_of(name, ranks),
        "stages": [stages_of(name, rank, ranks) for rank in range(ranks)],
        "orders": [json.loads((folder / f"{name}_0_{rank}.order").read_text()) for rank in range(ranks)],
    }
    path.write_text(json.dumps(dict(sorted(programs.items())), indent=1) + "\n")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    chosen = [int(sys.argv[1])] if len(sys.argv) > 1 else [*TRIES]
    for ranks in chosen:
        with tempfile.TemporaryDirectory() as folder:
            names = sys.argv[2:] or [*SCHEDULES]
            multiprocessing.spawn(train, (names, ranks, folder), nprocs=ranks)
            for name in names:
                write(name, ranks, Path(folder))
