"""Drawn runs of a pipeline, written as profilers write them, with the figures that are right for each."""

import gzip
import json
import random
import sqlite3
import statistics
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

#: Microseconds from one step to the next, and names of passes: of torch with and without the stage, of a person.
STEP_US = 10_000_000
NAMES = {
    "actions": ("PP:{s}F{m}", "PP:{s}B{m}"),
    "gpipe": ("Forward {m}", "Backward {m}"),
    "own": ("fwd stage {s} mb {m}", "bwd stage {s} mb {m}"),
}
RULES = ("forward=fwd stage {stage} mb {micro_batch}", "backward=bwd stage {stage} mb {micro_batch}")
PREFIXES = ("", "[default3]: ", "7: ", "2026-01-31 12:00:00,123 INFO ")


@dataclass
class Event:
    """One span of a process: its name, its start and its length in microseconds."""

    name: str
    start: int
    us: int
    thread: int = 1


@dataclass
class Drawn:
    """A drawn run.

    Attributes:
        form: how it is written.
        files: contents by names, in the order in which they are given.
        right: medians of forward, backward and update of each stage; empty where a refusal is right.
        count: micro-batches of a step.
        reason: a part of the message of a refusal that is right; empty where reading is.
        names, stages: what a person says of it by --name and --stages.
    """

    form: str
    files: dict[str, bytes] = field(default_factory=dict)
    right: list[tuple[Fraction, ...]] = field(default_factory=list)
    count: int = 0
    reason: str = ""
    names: tuple[str, ...] = ()
    stages: int | None = None


def drawn(seed: int) -> Drawn:
    """Return the run of a seed."""
    rng = random.Random(seed)
    return rng.choice([*[_trace] * 6, *[_log] * 4, _spans, _spans, _report, _report, _other])(rng)


class _Run:
    """Lengths of passes, and the spans of each rank as a GPipe schedule starts them."""

    def __init__(self, rng: random.Random, names: str, chunks: int = 1, replicas: int = 1) -> None:
        self.ranks, self.chunks, self.replicas = rng.randint(1, 6), chunks, replicas
        self.stages, self.count = self.ranks * chunks, rng.randint(1, 6)
        self.steps = rng.randint(1, 3)
        self.warm = self.steps > 1 and rng.random() < 0.3
        self.waits, self.recomputes = rng.random() < 0.3, rng.random() < 0.2
        self.forward = [rng.randint(50, 900) for _ in range(self.stages)]
        self.backward = [rng.randint(1000, 1900) for _ in range(self.stages)]
        self.update = [rng.randint(20, 90) for _ in range(self.ranks)]
        self.names = NAMES[names]
        self.events: dict[int, list[Event]] = defaultdict(list)
        self.times: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.updates: dict[int, list[int]] = defaultdict(list)
        for replica in range(replicas):
            for step in range(self.steps):
                self._step(rng, replica, step)

    def rank(self, stage: int, replica: int) -> int:
        """Return the rank of a stage: chunks go round, replicas of a stage follow each other."""
        return stage % self.ranks * self.replicas + replica

    def _step(self, rng: random.Random, replica: int, step: int) -> None:
        slow, base = 4 if self.warm and step == 0 else 1, step * STEP_US
        for stage in range(self.stages):
            events = self.events[self.rank(stage, replica)]
            for micro_batch in range(self.count):
                numbers = {"s": stage, "m": micro_batch}
                for kind, us, start in (
                    (0, self.forward[stage], (stage + micro_batch * self.stages) * 5000),
                    (1, self.backward[stage], 2_000_000 + (self.stages - stage + micro_batch * self.stages) * 9000),
                ):
                    length = slow * us + rng.randint(0, 40)
                    if not (self.warm and step == 0):
                        self.times[stage, kind].append(length)
                    waited = rng.randint(1, 700) if self.waits and kind == 0 and stage else 0
                    name = self.names[kind].format(**numbers)
                    events.append(Event(name, base + start, length + waited))
                    if waited:
                        events.append(Event(rng.choice(["gloo:recv", "nccl:recv 0<-1"]), base + start + 1, waited))
                    if self.recomputes and kind == 1:
                        events.append(Event(self.names[0].format(**numbers), base + start + 10, 45))
        for rank in range(self.ranks):
            parts = [self.update[rank] + rng.randint(0, 5) for _ in range(self.chunks)]
            for number, us in enumerate(parts):
                start = base + 6_000_000 + number * 200
                self.events[rank * self.replicas + replica].append(Event("Optimizer.step#Adam.step", start, us))
            if not (self.warm and step == 0):
                self.updates[rank].append(sum(parts))

    def right(self) -> list[tuple[Fraction, ...]]:
        """Return the medians of each stage."""
        return [
            (
                Fraction(statistics.median(self.times[stage, 0])),
                Fraction(statistics.median(self.times[stage, 1])),
                Fraction(statistics.median([Fraction(us, self.chunks) for us in self.updates[stage % self.ranks]])),
            )
            for stage in range(self.stages)
        ]


def _trace(rng: random.Random) -> Drawn:
    """Return a run as Chrome traces: a file a rank, or one of all."""
    names = rng.choice([*NAMES])
    chunks = 1 if names == "gpipe" else rng.choice([1, 1, 2])
    run = _Run(rng, names, chunks, rng.choice([1, 1, 2]))
    world = run.ranks * run.replicas
    layout = rng.choice(["files", "files", "files", "merged", "merged", "threads", "threads", "unnamed"])
    form = rng.choice(["object", "list", "open list", "lines", "begin and end", "asynchronous"])
    found = Drawn(f"trace, {layout}, {form}", {}, run.right(), run.count, names=RULES if names == "own" else ())
    found.stages = run.stages if names == "gpipe" and run.replicas > 1 else None
    said = rng.choice(["info", "name", "number"])
    pids = rng.sample(range(100, 9000), world)
    if layout == "files":
        defect = rng.choice([*[""] * 6, "missing", "contradiction"])
        ranks = [*range(world)]
        if defect == "missing" and world > 2 and not found.stages:
            ranks.remove(rng.randrange(world - 1))
            found.reason = "got none of"
        is_device = not (run.waits or run.recomputes) and rng.random() < 0.3 and "and" not in form
        cycles = rng.choice([1, 1, 2]) if said != "number" else 1
        parts = [(rank, cycle) for rank in ranks for cycle in range(cycles)]
        is_misnamed = defect == "contradiction" and said == "info"
        if is_misnamed:
            found.reason = "expected rank"
        for rank, cycle in parts:
            info = {"backend": "gloo", "rank": rank, "world_size": world} if said == "info" else None
            stem = {"info": f"t{rng.randrange(10**9)}", "name": f"x_rank{rank}", "number": f"w{rank}"}[said]
            stem = f"rank_{rank + 1}" if is_misnamed else stem
            spans = run.events[rank]
            if is_device:
                spans = [*spans, *(Event(e.name, e.start, 3, 0) for e in spans)]
            made = _chrome({pids[rank]: spans}, form, info, rng)
            found.files[f"{stem}.c{cycle}.json" if cycles > 1 or said == "info" else f"{stem}.json"] = made
    elif layout in ("merged", "unnamed"):
        order = [*range(world)]
        rng.shuffle(order)
        in_order = [pids[rank] for rank in range(world)] == sorted(pids)
        if layout == "unnamed" and names == "gpipe" and not in_order:
            # Replicas of a stage may change places, which no time tells.
            found.reason = "the order of ranks was assumed" if run.replicas == 1 else ""
            found.right = found.right if run.replicas == 1 else []
        metadata = [
            {"ph": "M", "name": "process_name", "pid": pids[rank], "args": {"name": f"python rank {rank}"}}
            for rank in order
            if layout == "merged"
        ]
        found.files["all.json"] = _chrome({pids[rank]: run.events[rank] for rank in order}, form, None, rng, metadata)
    else:
        spans = {7: [Event(e.name, e.start, e.us, rank + 1) for rank in run.events for e in run.events[rank]]}
        found.files["all.json"] = _chrome(spans, form, None, rng)
    _pack(found, rng)
    return found


def _pack(found: Drawn, rng: random.Random) -> None:
    """Put a byte order mark before some files, pack some, and give them in any order."""
    for name in rng.sample([*found.files], len(found.files)):
        mark = b"\xef\xbb\xbf" if rng.random() < 0.2 else b""
        content = mark + found.files.pop(name)
        found.files[name] = gzip.compress(content) if rng.random() < 0.2 else content


def _posted(event: Event) -> Event:
    """Return a span; every second receive begins before its pass, as torch posts it, and ends as it did, less 1 us."""
    if not event.name.startswith(("gloo:", "nccl:")) or event.us % 2:
        return event
    return Event(event.name, event.start - 300, event.us + 299, event.thread)


def _chrome(
    processes: dict[int, list[Event]],
    form: str,
    info: dict[str, object] | None,
    rng: random.Random,
    metadata: Iterable[dict[str, object]] = (),
) -> bytes:
    events: list[dict[str, object]] = [*metadata]
    for pid, drawn in processes.items():
        # Begins and ends on one thread lie one in another.
        spans = drawn if form == "begin and end" else [*map(_posted, drawn)]
        # Thread 0 is the host of a device, whose spans end when kernels are launched.
        on_device = any(event.thread == 0 for event in spans)
        alone = [
            {"name": e.name, "cat": "gpu_user_annotation", "pid": 0, "tid": 7}
            if on_device and e.thread
            else {"name": e.name, "cat": "user_annotation", "pid": pid, "tid": e.thread}
            for e in spans
        ]
        if form == "begin and end":
            edges = []
            for number, (event, said) in enumerate(zip(spans, alone, strict=True)):
                edges.append((event.start, 1, -event.us, number, {**said, "ph": "B", "ts": event.start}))
                end = event.start + event.us
                edges.append((end, 0, event.us, number, {"ph": "E", "pid": pid, "tid": event.thread, "ts": end}))
            events += [edge for *_, edge in sorted(edges, key=lambda edge: edge[:4])]
        elif form == "asynchronous":
            for number, (event, said) in enumerate(zip(spans, alone, strict=True)):
                events.append({**said, "ph": "b", "id": number, "ts": event.start})
                events.append({**said, "ph": "e", "id": number, "ts": event.start + event.us})
        else:
            whole = [{**s, "ph": "X", "ts": e.start, "dur": e.us} for e, s in zip(spans, alone, strict=True)]
            rng.shuffle(whole)
            events += whole
    events.append(
        {"ph": "X", "name": "aten::mm", "cat": "cpu_op", "pid": next(iter(processes)), "tid": 99, "ts": 5, "dur": 3}
    )
    if form == "lines":
        lines = [json.dumps(event) for event in events] + ([json.dumps({"distributedInfo": info})] if info else [])
        return "\n".join(lines).encode()
    if form in ("list", "open list") and info is None:
        text = json.dumps(events, indent=0)
        return (text if form == "list" else text[:-1] + rng.choice(["", ",\n"])).encode()
    data: dict[str, object] = {"schemaVersion": 1, "traceEvents": events}
    return json.dumps(
        data if info is None else dict(rng.sample([*data.items(), ("distributedInfo", info)], 3))
    ).encode()


def _log(rng: random.Random) -> Drawn:
    """Return a run as logs of Megatron-LM."""
    stages, replicas, tensor = rng.randint(1, 4), rng.choice([1, 2]), rng.choice([1, 1, 2])
    world, inside = stages * replicas * tensor, rng.random() < 0.3
    counts = [rng.randint(1, 8)] if rng.random() < 0.7 else rng.sample(range(1, 9), 2)
    forward = [rng.randint(10, 90) for _ in range(stages)]
    update = [rng.randint(2, 9) for _ in range(stages)]
    word = rng.choice(["micro-batches", "microbatches"])
    head = rng.choice(["dotted", "yaml", "options", "lines"])
    defect = rng.choice([*[""] * 12, "head", "rank", "count", "contradiction"])
    sizes = {"pipeline_model_parallel_size": stages, "tensor_model_parallel_size": tensor}
    switch = head in ("dotted", "options") and inside
    lines = {
        "dotted": [f"  {key} {'.' * (40 - len(key))} {value}" for key, value in sizes.items()]
        + ([f"  use_tp_pp_dp_mapping {'.' * 12} True"] if switch else []),
        "yaml": ["model:", *(f"  {key}: {value}" for key, value in sizes.items())],
        "options": [
            "torchrun pretrain.py "
            + " ".join(f"--{key.replace('_', '-')} {value}" for key, value in sizes.items())
            + (" --use-tp-pp-dp-mapping" if switch else "")
        ],
        "lines": [
            f"> initialized tensor model parallel with size {tensor}",
            f"> initialized pipeline model parallel with size {stages}",
        ],
    }[head]

    def stage_of(rank: int) -> int:
        return rank // tensor % stages if switch else rank // (tensor * replicas)

    found = Drawn(f"log, {head}", {}, [], counts[-1])
    if defect == "head":
        lines, found.reason = [], "set the option stages"
    elif defect == "contradiction":
        lines.append(f"  pipeline_model_parallel_size ......... {stages + 1}")
        found.reason = "pipeline stages, as"
    missing = set[int]()
    if defect == "rank" and world > 1:
        # One rank, or the second half of a world whose size the head states.
        missing = {rng.randrange(world - 1)} if head != "dotted" else {*range((world + 1) // 2, world)}
        lines += [f"  world_size {'.' * 22} {world}"] if head == "dotted" else []
        found.reason = "got none of rank"
    nodes = [[*lines], list[str]()] if rng.random() < 0.3 else [[*lines]]
    body = nodes[-1]
    foreign = rng.random() < 0.4
    for number, count in enumerate(counts):
        if defect != "count":
            nodes[0 if len(counts) == 1 else -1].append(f"setting number of {word} to constant {count}")
        for iteration in range(2 + number):
            body.append(f" iteration {iteration + 1:8}/     100 | elapsed time per iteration (ms): 900.0 |")
            body.append("times across ranks (ms):")
            for timer, times in (
                ("interval-time", [900] * stages),
                ("forward-compute", [us * count for us in forward]),
                ("backward-compute", [2 * us * count for us in forward]),
                ("optimizer", update),
            ):
                body.append(f"  {timer}:")
                for rank in range(world):
                    if rank not in missing:
                        body.append(f"     rank {rank:2}: {times[stage_of(rank)]}.00")
                    if foreign and rng.random() < 0.1:
                        body.append(
                            rng.choice(["/usr/lib/x.py:12: UserWarning: barrier() is slow", "", "NCCL INFO ok:"])
                        )
    if defect == "count":
        found.reason = found.reason or "set the option count"
    found.right = [
        (Fraction(us * 1000), Fraction(2000 * us), Fraction(1000 * update[n])) for n, us in enumerate(forward)
    ]
    prefix, coloured = rng.choice(PREFIXES), rng.random() < 0.2
    for number, node in enumerate(nodes):
        text = "".join(f"{prefix}\x1b[32m{line}\x1b[0m\n" if coloured else f"{prefix}{line}\n" for line in node)
        found.files[f"node{number}.log"] = gzip.compress(text.encode()) if rng.random() < 0.1 else text.encode()
    return found


def _spans(rng: random.Random) -> Drawn:
    """Return a run as OpenTelemetry spans of Megatron-LM."""
    run = _Run(rng, "gpipe")
    found = Drawn("spans, OTLP", {}, run.right(), run.count)
    words = {"F": "megatron.microbatch.forward", "B": "megatron.microbatch.backward", "O": "megatron.optimizer_step"}
    words |= {"g": "megatron.p2p.recv_forward", "n": "megatron.p2p.recv_backward"}
    ranks = [*range(run.ranks)]
    if run.ranks > 1 and rng.random() < 0.2:
        ranks.remove(rng.randrange(run.ranks - 1))
        found.reason = "got none of rank"
    lines = []
    for rank in ranks:
        resource = {"service.instance.id": f"run7-rank{rank}", "dl.pipeline_parallel.size": run.ranks}
        spans = []
        for event in run.events[rank]:
            attributes = {"megatron.microbatch_id": int(event.name.split()[1])} if event.name[0] in "FB" else {}
            start, end = (str(1_700_000_000 * 10**9 + us * 1000) for us in (event.start, event.start + event.us))
            times = {"startTimeUnixNano": start, "endTimeUnixNano": end}
            spans.append({"name": words[event.name[0]], **times, "attributes": _typed(attributes)})
        group = {"resource": {"attributes": _typed(resource)}, "scopeSpans": [{"spans": spans}]}
        lines.append(json.dumps({"resourceSpans": [group]}))
    rng.shuffle(lines)
    found.files["spans.json"] = "\n".join(lines).encode()
    return found


def _typed(attributes: dict[str, object]) -> list[dict[str, object]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in attributes.items()
    ]


def _report(rng: random.Random) -> Drawn:
    """Return a run as reports of nsys, a file of each rank."""
    names = rng.choice([*NAMES])
    run = _Run(rng, names)
    found = Drawn("report, SQLite", {}, run.right(), run.count, names=RULES if names == "own" else ())
    for rank in range(run.ranks):
        with closing(sqlite3.connect(":memory:")) as database:
            database.execute(
                "CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT)"
            )
            database.execute("CREATE TABLE StringIds (id INT, value TEXT)")
            for number, event in enumerate(run.events[rank]):
                text, key = (event.name, None) if rng.random() < 0.5 else (None, number)
                database.execute("INSERT INTO StringIds VALUES (?, ?)", (number, event.name))
                span = (event.start * 1000, (event.start + event.us) * 1000, 59, text, key, 77 << 24 | 1)
                database.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", span)
            database.commit()
            found.files[f"report_rank{rank}.sqlite"] = database.serialize()
    return found


def _other(rng: random.Random) -> Drawn:
    """Return a file of a form that has no reader, or a log of one rank alone."""
    form, content, reason = rng.choice(
        [
            ("zip", b"PK\x03\x04" + bytes(60), "a zip archive: unpack it"),
            ("zstd", b"\x28\xb5\x2f\xfd" + bytes(60), "xz, zstd or bzip2"),
            ("Jaeger", b'{"data": [{"traceID": "1", "spans": []}]}', "spans of Jaeger"),
            ("UTF-16", "\ufefftimes across ranks (ms):".encode("utf-16"), "UTF-16"),
            (
                "means",
                b"(min, max) time across ranks (ms):\n    forward-compute: (1.00, 2.00)\n",
                "--timing-log-option all",
            ),
            ("DeepSpeed", b"[Rank 0] rank=0 time (ms) | forward_microstep: 5.00\n", "DeepSpeed's timers"),
        ]
    )
    return Drawn(f"no reader: {form}", {"file": content}, [], 0, reason)


def first_of_forms() -> dict[str, Drawn]:
    """Return the first run of each form that is one file and read right."""
    found: dict[str, Drawn] = {}
    for run in map(drawn, range(150)):
        if len(run.files) == 1 and run.right and not run.reason and not run.names:
            found.setdefault(run.form, run)
    return found


def write(found: Drawn, folder: Path) -> list[Path]:
    """Write the files of a run."""
    for name, content in found.files.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in found.files]
