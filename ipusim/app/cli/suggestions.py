"""Command ``suggest``: search for a better plan of a scenario, or for a better order of its passes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ipusim.app.cli.app import Overrides, ScenarioPath, allow_only, app, printing, split_names
from ipusim.app.study.forms import PRINTED
from ipusim.app.terminal import print_result, resume_garbage_collection, status, stoppable
from ipusim.base.errors import OptionError, as_option_error

if TYPE_CHECKING:
    from ipusim.app.suggest.baseline import Baseline
    from ipusim.app.suggest.limits import Limits
    from ipusim.app.suggest.searched import Searched
    from ipusim.app.suggest.suggestion import Suggestion

#: Default seconds of the search for an order.
_SYNTHESIS_S = 10.0


def _option(text: str, metavar: str) -> Any:
    return typer.Option(metavar=metavar, help=text)


Batch = Annotated[int | None, _option("samples for each weight update  [default: the scenario's]", "N")]
File = Annotated[
    Path | None,
    _option(
        "file for the suggested scenario; with --order the folder of results  [default: reports/<name>]", "FILE.yaml"
    ),
]
Order = Annotated[
    bool,
    typer.Option(
        "--order",
        help="search an order of passes for the scenario's plan, starting from --schedules; write the order in "
        "Python, as torch's CSV, and as a scenario",
    ),
]
Ipus = Annotated[
    str | None,
    _option(
        "numbers of IPUs of the device; the best plan for each is shown  [default: the best of powers of two up to the "
        "scenario's number]",
        "N,...",
    ),
]
Replicas = Annotated[str | None, _option("numbers of replicas", "N,...")]
Stages = Annotated[str | None, _option("numbers of stages", "N,...")]
Sizes = Annotated[str | None, _option("samples in a micro-batch  [default: the scenario's]", "N,...")]
Schedules = Annotated[
    str | None,
    _option(
        "names of schedules, or all  [default: Graphcore's, single, and the scenario's; with --order all]", "NAMES"
    ),
]
Syncs = Annotated[str | None, _option("sync modes, or the sync mode for --order  [default: the given plan's]", "MODES")]
Placements = Annotated[
    str | None,
    _option("placements of stages: straight, returning (0,1,0), around (0,1,0,1), there_and_back (0,1,1,0)", "NAMES"),
]
Recompute = Annotated[str | None, _option("whether activations are recomputed  [default: yes,no]", "WORDS")]
Offload = Annotated[str | None, _option("whether optimizer state lies in Streaming Memory  [default: yes,no]", "WORDS")]
Sharding = Annotated[
    str | None, _option("whether replicas share the storage of optimizer state  [default: yes,no]", "WORDS")
]
Activations = Annotated[
    str | None, _option("destination of activations: stay, streaming_memory, partner  [default: the plan's]", "WORDS")
]
Orders = Annotated[
    str | None,
    _option("selection orders  [default: the order that the machine takes by itself, and all others]", "NAMES"),
]
Simulations = Annotated[int, typer.Option(min=1, metavar="N", help="maximum number of plans to simulate")]
Seconds = Annotated[
    float | None,
    _option(
        "time limit of the search in seconds; inf: until the plan is proven the best  [default: 60; with --order 10 "
        "seconds more than the named schedules take]",
        "S",
    ),
]
Memory = Annotated[
    str | None,
    _option(
        "with --order: maximum bytes on each IPU, such as 400 MiB, or a size for each IPU; or the maximum number of "
        "micro-batches on an IPU, such as '8 micro-batches'  [default: the machine's]",
        "SIZE,...",
    ),
]


@app.command()
@printing
def suggest(
    context: typer.Context,
    scenario: ScenarioPath,
    global_batch: Batch = None,
    out: File = None,
    ipus: Ipus = None,
    replicas: Replicas = None,
    stages: Stages = None,
    micro_batch_sizes: Sizes = None,
    schedules: Schedules = None,
    sync: Syncs = None,
    placements: Placements = None,
    recompute: Recompute = None,
    offload: Offload = None,
    sharding: Sharding = None,
    activations: Activations = None,
    orders: Orders = None,
    order: Order = False,
    memory: Memory = None,
    simulations: Simulations = 200,
    seconds: Seconds = None,
    overrides: Overrides = None,
    output_form: str = "",
) -> None:
    """Find the best legal plan for a model: stages, schedule, count, replicas; write a scenario with this plan.

    The search ends once its plan is proven the best, or no plan fits; else time or Ctrl-C ends it with the best so far.
    With --order it finds the best order of passes instead, and prints the distance to a bound on all orders.
    """
    from ipusim.app.run_folder.output_file import SUGGESTED
    from ipusim.app.suggest.limits import Limits

    options = overrides or ()
    names = None if schedules is None else _schedule_names(schedules, scenario.parent)
    if order:
        allow_only(context, "--order", "scenario", "out", "schedules", "memory", "seconds", "set", "sync", *PRINTED)
        if out is not None and out.suffix in SUGGESTED.marks:
            raise OptionError("out", f"expected a folder with {{}}, got {out}", "order")
        seconds = _SYNTHESIS_S if seconds is None else seconds
        _write_order(scenario, [*options, *_sync_option(sync)], out, names or ["all"], memory, seconds, output_form)
        return
    if memory is not None:
        raise OptionError("memory", "expected none without {}", "order")
    limits = Limits(
        global_batch=global_batch,
        ipus=_numbers("ipus", ipus),
        replicas=_numbers("replicas", replicas),
        stages=_numbers("stages", stages),
        micro_batch_sizes=_numbers("micro_batch_sizes", micro_batch_sizes),
        schedules=None if names is None else tuple(names),
        sync=_names("sync", sync),
        placements=_names("placements", placements),
        recompute=_names("recompute", recompute),
        offload=_names("offload", offload),
        sharding=_names("sharding", sharding),
        activations=_names("activations", activations),
        orders=_names("orders", orders),
    )
    seconds = 60.0 if seconds is None else seconds
    _write_plan(scenario, options, limits, simulations, seconds, out, output_form)


def _write_plan(
    scenario: Path,
    overrides: Sequence[str],
    limits: Limits,
    simulations: int,
    seconds: float,
    out: Path | None,
    output_form: str,
) -> None:
    """Search for a plan and write its scenario."""
    from ipusim.app.run_folder.output_file import SUGGESTED, check_output
    from ipusim.app.scenario.load import placed_request
    from ipusim.app.suggest.budget import Budget
    from ipusim.app.suggest.suggestion import suggest as find
    from ipusim.app.suggest.words import SuggestionResult, so_far
    from ipusim.app.suggest.writing import write_suggested

    outputs = {} if out is None else _outputs(out, limits)
    for output in outputs.values():
        check_output(output, SUGGESTED, (scenario,))
    resume_garbage_collection()
    with stoppable() as stop:
        budget = Budget(seconds, interrupted=stop)
        with placed_request(scenario, overrides) as request, status("suggest") as show:

            def tell(given_plan: Baseline, outcome: Searched) -> None:
                show(lambda: so_far(given_plan, outcome, budget.seconds))

            suggestion = find(request, limits, simulations=simulations, budget=budget, progress=tell)
        suggestion.raise_if_none()
        end = "--out FILE.yaml writes it as a scenario." if suggestion.plan is not None else ""
        if out is not None:
            plans: dict[int | None, Suggestion] = {None: suggestion}
            plans.update(suggestion.plan_by_ipus.items())
            for size, plan in plans.items():
                write_suggested(plan, scenario, overrides, outputs[size])
            end = ", ".join(str(outputs[size]) for size in plans)
        print_result(SuggestionResult(suggestion), output_form, *filter(None, [end]))


def _outputs(out: Path, limits: Limits) -> dict[int | None, Path]:
    """Return the output file of the suggested plan, under None, and of the plan for each of several numbers of IPUs."""
    sizes = {*(limits.ipus or ())}
    return {
        None: out,
        **{size: out.with_name(f"{out.stem}-{size}{out.suffix}") for size in (sizes if len(sizes) > 1 else ())},
    }


def _schedule_names(text: str, folder: Path) -> list[str]:
    """Return named schedules; files of the current folder get their path from the scenario's ``folder``."""
    from ipusim.api import schedules

    return [schedules.named_from(name, folder) for name in split_names("schedules", text)]


def _sync_option(text: str | None) -> list[str]:
    """Return the override for the sync mode of a searched order, if given."""
    from ipusim.app.scenario.overrides import OptionOverride

    modes = split_names("sync", text)
    if len(modes) > 1:
        raise OptionError("sync", f"expected one sync mode with {{}}, got {text}", "order")
    return [OptionOverride("sync", "pipeline.sync", mode) for mode in modes]


def _names(option: str, text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(split_names(option, text))


def _numbers(option: str, text: str | None) -> tuple[int, ...] | None:
    from ipusim.api import runs

    names = _names(option, text)
    for name in names or ():
        if not name.isdecimal():
            raise OptionError(option, f"expected whole numbers from 1 up, separated by commas, got {runs.show(name)}")
    return None if names is None else tuple(map(int, names))


def _write_order(
    scenario: Path,
    overrides: Sequence[str],
    folder: Path | None,
    schedules: Sequence[str],
    memory: str | None,
    seconds: float,
    output_form: str,
) -> None:
    """Search for an order for a scenario's costs, and write order and scenario.

    The results folder holds the order in Python for all counts, the order as torch's CSV, a scenario that runs the
    order, and a picture of the order next to the best named schedule.
    """
    from ipusim.app.run_folder.folder import ResultsFolder
    from ipusim.app.scenario.load import placed_request
    from ipusim.app.study.result import written
    from ipusim.app.synthesize.files import SynthesisResult
    from ipusim.app.synthesize.synthesis import synthesize as search

    limits = {} if memory is None else _limits(memory)
    resume_garbage_collection()
    with placed_request(scenario, overrides) as request, stoppable() as stop, status("suggest") as show:
        folder = folder or Path("reports") / request.name

        def tell(text: str) -> None:
            show(lambda: text)

        with ResultsFolder(folder, SynthesisResult.names, reads=[scenario]) as results:
            synthesis = search(request, schedules, seconds=seconds, tell=tell, is_stopped=stop, **limits)
            result = SynthesisResult(synthesis, request, folder)
            files = result.files()
            results.write(files)
        print_result(result, output_form, written(folder, files))


def _limits(text: str) -> dict[str, Any]:
    """Parse memory limits of a search, in bytes or micro-batches; raises OptionError for other text."""
    from ipusim.base.units import parse_quantity

    number, _, unit = text.strip().partition(" ")
    if unit.strip() in ("micro-batch", "micro-batches"):
        if not number.isdecimal() or int(number) < 1:
            raise OptionError("memory", f"expected a whole number of micro-batches from 1 up, got {text!r}")
        return {"micro_batches": int(number)}
    parts = split_names("memory", text)
    with as_option_error("memory", ValueError):
        sizes = [int(parse_quantity(part, "bytes")) for part in parts]
    if min(sizes) < 1:
        raise OptionError("memory", f"expected sizes above 0, got {text!r}")
    return {"memory": sizes}
