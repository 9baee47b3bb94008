"""What is run for a record: the scenarios and programs of this repository, and drawn ones, all of them as text.

Generators of other tests draw; what they draw is written down here as scenarios and programs, which a record keeps.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from ipusim.app.scenario import load_request
from ipusim.app.scenario.write import scenario_text
from ipusim.pipeline.program import PipelineProgram
from ipusim.runs.request.model_spec import TimedStageSpec
from ipusim.runs.request.request import Request
from ipusim.runs.yaml_text import Located
from tests.oracles.test_host_tables import TEXT as TABLES
from tests.orders import passes_of
from tests.properties import test_machine_invariants, test_memory_over_time, test_option_combinations
from tests.random_runs import among, drawn
from tests.replay.drawn_programs import program_text, programs_drawn
from tests.scenarios import SCENARIOS

#: Arguments with which programs take less long, and run all the same.
ARGUMENTS = {
    **dict.fromkeys(("step2_sharding", "step3_pipelining", "step4_configurable_stages"), ("--epochs", "1")),
    **dict.fromkeys(("keras_sequential", "keras_single_ipu", "keras_saving"), ("--epochs", "1")),
    "variables_on_host": ("--steps", "2"),
}
#: How many are drawn: of all options with arithmetic, of users' Orders, of stages known by their cycles under every
#: schedule, with tables on the host, and of programs whose stages call collectives and the host.
DRAWN = {"options": 180, "orders": 40, "cycles": 40, "tables": 16, "programs": 24}
#: The same in a small record, and the scenarios of it.
SMALL = {"options": 5, "orders": 2, "cycles": 2, "tables": 1, "programs": 2}
SMALL_SCENARIOS = ("gpu_schedules", "host_embedding", "overlapped_io", "schedules_four_ipus", "variables_on_host")
#: Schedules that only train.
TRAINING = ("1f1b", "zero_bubble_h1")
#: The sync modes.
SYNCS = ("lock_step", "point_to_point")
#: The file of a drawn Order.
ORDER = """from ipusim.pipeline.order import Order
from ipusim.schedules.features import Feature
from ipusim.schedules.schedule import Schedule

PASSES = {passes}


def order(shape):
    return Order.from_passes("drawn", shape, PASSES)


drawn = Schedule("drawn", order, lambda shape: 1, True, "a drawn Order", supports=frozenset(Feature))
"""


@dataclass(frozen=True)
class Requested:
    """A request as a record has it.

    Attributes:
        name: such as ``options 017``.
        file: the scenario or the program among ``files``.
        files: the text of each, by name.
        arguments: of a program.
        changes: of a program, options to run its last pipeline with once more, by their dotted names.
    """

    name: str
    file: str
    files: dict[str, str]
    arguments: tuple[str, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    @classmethod
    def of(cls, data: dict[str, Any]) -> Requested:
        """Return what :meth:`as_data` has given."""
        return cls(**{**data, "arguments": tuple(data["arguments"])})


def every() -> list[Requested]:
    """Return the scenarios, the programs, and 300 drawn requests."""
    return [*scenarios(), *programs(), *drawn_requests(DRAWN)]


def small() -> list[Requested]:
    """Return a few requests of each sort that take a moment."""
    return [*(each for each in scenarios() if Path(each.file).stem in SMALL_SCENARIOS), *drawn_requests(SMALL)]


def scenarios() -> Iterator[Requested]:
    """Yield the scenarios of this repository."""
    for path in sorted(SCENARIOS.glob("*.yaml")):
        beside = {name: (SCENARIOS / name).read_text() for name in load_request(path).files()}
        yield Requested(f"scenario {path.stem}", path.name, {path.name: path.read_text(), **beside})


def programs() -> Iterator[Requested]:
    """Yield the programs of this repository."""
    for path in sorted((SCENARIOS / "python").glob("*.py")):
        text = path.read_text()
        beside = {other.name: other.read_text() for other in path.parent.glob("*.py") if other.name in text}
        files = {path.name: text, **beside}
        yield Requested(f"program {path.stem}", path.name, files, ARGUMENTS.get(path.stem, ()))


def drawn_requests(counts: dict[str, int]) -> list[Requested]:
    """Return so many drawn requests of each sort; the same ones under any hash seed."""
    sorts = {
        "options": rare_first(distinct(drawn(test_option_combinations.scenarios(), examples=4 * counts["options"]))),
        "orders": (of_order(seed) for seed in range(counts["orders"])),
        "cycles": distinct(drawn(legal_programs(), examples=max(30, 3 * counts["cycles"]))),
        "tables": distinct(drawn(tables(), examples=max(30, 3 * counts["tables"]))),
        "programs": distinct(drawn(programs_drawn(), examples=max(30, 3 * counts["programs"]))),
    }
    found = []
    for sort, values in sorts.items():
        for number, value in enumerate(islice(values, counts[sort])):
            found.append(requested(f"{sort} {number:03}", sort, value))
    return found


def distinct(values: Any) -> Iterator[Any]:
    """Yield each value once; the shards of a generator begin with the same simplest one."""
    seen = set()
    for value in values:
        text = json.dumps(value, sort_keys=True, default=str)
        if text not in seen:
            seen.add(text)
            yield value


def rare_first(values: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return scenarios with I/O tiles or concurrent stages, which few have, before the others."""

    def is_common(data: dict[str, Any]) -> bool:
        concurrent = any(isinstance(ipus, list) for ipus in data["pipeline"].get("device_mapping", []))
        return not concurrent and "io_tiles" not in data["system"]

    return sorted(values, key=is_common)


def requested(name: str, sort: str, value: Any) -> Requested:
    """Return what was drawn as a request of that name."""
    if sort == "programs":
        return Requested(name, "drawn.py", {"drawn.py": program_text(value)}, changes=value["changes"])
    if sort == "tables":
        return Requested(name, "drawn.yaml", {"drawn.yaml": table_text(value)})
    beside = {}
    if sort == "orders":
        value, beside = value
    return Requested(name, "drawn.yaml", {"drawn.yaml": scenario_of(value), **beside})


def scenario_of(data: dict[str, Any]) -> str:
    """Return a scenario's mapping as the text of one."""
    text = scenario_text(Request.from_dict(data, name="drawn"), Path())
    assert text is not None, data
    return text


def legal_programs() -> st.SearchStrategy[dict[str, Any]]:
    """Return what draws scenarios of stages known by their cycles, under every schedule of the house."""
    programs = test_memory_over_time.programs().filter(
        lambda program: program.schedule != test_memory_over_time.DRAWN and not program.shape.sizes
    )
    systems = among("m2000", "bow_pod16", "free")
    return st.builds(of_program, programs, among(*SYNCS), systems, among(1, 1, 2), among(1, 12), among(1, 1000))


def of_order(seed: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a scenario under a drawn Order, and the file of that."""
    program, order, system = test_machine_invariants.drawn(seed)
    data = of_program(program, SYNCS[random.Random(seed).randrange(2)], system.name, system.replicas)
    data["system"] |= {"auto_select_ipus": system.count, "selection_order": system.selection_order}
    data["pipeline"]["schedule"] = "order.py:drawn"
    return data, {"order.py": ORDER.format(passes=dict(passes_of(order)))}


def of_program(
    program: PipelineProgram, sync: str, system: str, replicas: int, times: int = 1, size: int = 1
) -> dict[str, Any]:
    """Return the scenario that asks for a pipeline of stages known by their cycles.

    It has so many ``times`` as many micro-batches, and stages of ``size`` times the cycles and bytes.
    """
    shape, offload = program.shape, program.offload
    away = offload.weight_update_variables or offload.gradient_accumulation_buffers or offload.activations
    moved = (
        None if offload.moved is None else {name: of for name, of in asdict(offload.moved).items() if of is not None}
    )
    if moved is not None and "stages" in moved:
        moved["stages"] = [program.stages[number].name for number in moved["stages"]]
    away = away or (moved is not None and moved["to"] == "streaming_memory")
    system = "m2000" if away and system == "free" else system
    shards = 1 << max(shape.mapping).bit_length()
    modes = {
        "RecomputeThenBackpropagate": shape.recompute,
        "RecomputeAndBackpropagateInterleaved": shape.recompute_inline,
    }
    mode = next((name for name, on in modes.items() if on), None)
    return {
        "system": {
            "name": system,
            "auto_select_ipus": shards * (replicas if shards * replicas <= 4 or system == "bow_pod16" else 1),
            "enable_remote_buffers": away,
            "sync_replicas_independently": program.sync_replicas_independently,
            **({"minimum_remote_tensor_size": 1} if away else {}),
        },
        "training": shape.training,
        "infeed": {"element_bytes": program.infeed.element_bytes, "prefetch_depth": program.infeed.prefetch_depth},
        "outfeed": {"element_bytes": program.outfeed.element_bytes, "mode": program.outfeed.mode},
        "pipeline": {
            "schedule": program.schedule,
            "sync": sync,
            "overlap_copies": program.overlap_copies,
            "overlapped": program.overlapped,
            "segments": shape.segments,
            "device_mapping": list(shape.mapping),
            "gradient_accumulation_count": times * shape.count // shape.serialization,
            "repeat_count": program.repeat_count,
            "stages": [of_stage(program, index, size) for index in range(shape.stages)],
            **({"allow_recompute": True, "recomputation_mode": mode} if mode else {}),
            **({"batch_serialization_iterations": shape.serialization} if shape.serialization > 1 else {}),
            **({"offload_activations": offload.activations} if shape.serialization > 1 else {}),
            **({"offload_activations": moved} if moved is not None else {}),
            "offload_weight_update_variables": offload.weight_update_variables,
            "offload_gradient_accumulation_buffers": offload.gradient_accumulation_buffers,
        },
    }


def of_stage(program: PipelineProgram, index: int, size: int) -> dict[str, Any]:
    """Return a stage as a scenario says it, without what it cannot say."""
    profile, training = program.stages[index], program.shape.training
    names = [name for name in TimedStageSpec.model_fields if hasattr(profile, name)]
    if not training:
        names = [
            name for name in names if name in ("name", "forward", "output_bytes", "parameter_bytes", "input_bytes")
        ]
    said = {name: getattr(profile, name) for name in names}
    if index == 0:
        said.pop("gradient_bytes", None)
    if index == program.shape.stages - 1:
        said.pop("output_bytes", None)
        said.pop("label_bytes", None)
    return {
        name: value * size if isinstance(value, int) else value for name, value in said.items() if value is not None
    }


def tables() -> st.SearchStrategy[dict[str, Any]]:
    """Return what draws the options of scenarios whose embeddings lie on the host."""
    return st.fixed_dictionaries(
        {
            "pipeline.schedule": among("grouped", "interleaved", "1f1b", "gpipe", "zero_bubble_h1"),
            "pipeline.sync": among(*SYNCS),
            "system.auto_select_ipus": among(2, 4),
            "system.host.count": among(1, 2),
            "system.host.host_drain": among("5 GB/s", "10 MB/s"),
            "optimizer.type": among("sgd", "adam", "lamb"),
            "pipeline.repeat_count": among(1, 3),
            "training": among(True, True, False),
        }
    ).filter(lambda options: options["training"] or options["pipeline.schedule"] not in TRAINING)


def table_text(options: dict[str, Any]) -> str:
    """Return the scenario of an embedding on the host with such options."""
    return scenario_of(Request.from_dict(Located("tables").read(TABLES)).replace(options).to_dict())
