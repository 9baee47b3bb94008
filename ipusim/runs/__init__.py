"""Path from a request to a result: Request, assemble, Job, execute, Run.

As ``runs`` of :mod:`ipusim.api` this package offers further parts of the path: sections of a request, their positions
in files and messages, Graphcore's names of options, limits, and YAML.
"""

from typing import TYPE_CHECKING

from ipusim.base.lazy import lazy

if TYPE_CHECKING:
    from ipusim.runs.assemble.lay_out import device_and_plan, order_options
    from ipusim.runs.assemble.limits import MAX_CYCLES, MAX_SAMPLE_ELEMENTS, most_session_runs
    from ipusim.runs.assemble.model_layers import RequestedLayer, model_layers
    from ipusim.runs.assemble.named_files import with_stages
    from ipusim.runs.assemble.plans import nearest_counts, plan_of
    from ipusim.runs.assemble.recomputation import is_add, kept_layers, mode_to_state
    from ipusim.runs.assemble.short_counts import short_counts
    from ipusim.runs.assemble.system import resolve_offloads
    from ipusim.runs.content import Content
    from ipusim.runs.disturbed import disturbance_cost, undisturbed
    from ipusim.runs.error_ranges import SEVERAL_PODS, end_text, kind_of
    from ipusim.runs.execute import sum_up
    from ipusim.runs.findings import Findings
    from ipusim.runs.full_pipeline import FullCounts, full_counts
    from ipusim.runs.one_ipu import run_on_one_ipu
    from ipusim.runs.other_passes import (
        MOST_PASSES_OF_ONE_RUN,
        long_run_without_events,
        run_without_events,
        runs_with_passes,
    )
    from ipusim.runs.other_seeds import RunCycles, runs_with_seeds
    from ipusim.runs.places import Place, PlacedProblem
    from ipusim.runs.problems import NUMBER_LIMIT, dotted, one_of, show
    from ipusim.runs.recurrences import Recurrence, has_only_passes, recurrence_of
    from ipusim.runs.request.expectation import Expectation
    from ipusim.runs.request.fields import MAX_STAGES, MOST_CYCLES, CyclesOfTime
    from ipusim.runs.request.graphcore_options import OTHER_ATTRIBUTES, GraphcoreOption, arguments, attributes
    from ipusim.runs.request.layer_spec import BuiltSpec
    from ipusim.runs.request.model_spec import NamedStageSpec, TimedStageSpec
    from ipusim.runs.request.moved_activations_spec import MovedActivationsSpec
    from ipusim.runs.request.pipeline_spec import PipelineSpec
    from ipusim.runs.request.profile import (
        MeasuredStage,
        has_stages,
        misplaced,
        read_profile,
        read_profiles,
        read_stages,
        wrong_number,
    )
    from ipusim.runs.request.request import index_of, options_set, plain, take_out, validate
    from ipusim.runs.request.schema import InfeedSpec, Options, OutfeedSpec, json_schema
    from ipusim.runs.request.system_spec import PoplarOptionsSpec
    from ipusim.runs.second_times import TimesCheck, check_times
    from ipusim.runs.sensitive import Sensitivities, sensitivities
    from ipusim.runs.session import Hook
    from ipusim.runs.stated_times import with_stated_times
    from ipusim.runs.time_alone import PriceFunction, timeline_of
    from ipusim.runs.titles import title_of
    from ipusim.runs.waterfall import balanced, recomputed_shares, waterfall_of, with_host
    from ipusim.runs.yaml_text import Located, dump, edited
else:
    __getattr__, __dir__ = lazy(__name__)
