"""List Graphcore's pipeline options, with the scenario key of each, or the reason for its absence.

Options with a key are read from the schema's annotations. A scenario with an option without a key is refused: no option
is silently ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from annotated_types import Ge

from ipusim.model.learning import table
from ipusim.model.learning.gradient_map import GradientMap
from ipusim.model.rows import row_of
from ipusim.runs.request.fields import Node
from ipusim.runs.request.graphcore import Argument, Attribute, GraphcoreName
from ipusim.runs.request.schema import Options


@dataclass(frozen=True)
class GraphcoreOption:
    """Option of Graphcore's API.

    Attributes:
        name: Graphcore's name.
        effect: effect in ipusim, or the alternative to an option that is not accepted.
        path: scenario key; empty for an option that is not accepted.
        value: value of this key that corresponds to the option; empty if the key takes the option's own value.
        kind: type of the value without None: a Python type, or a section's class.
        optional: whether None means a default determined later.
        default: default value; None also for a required option.
        least: lower bound of a whole number.
    """

    name: str
    effect: str
    path: tuple[str, ...] = ()
    value: str = ""
    kind: Any = None
    optional: bool = False
    default: Any = None
    least: int = 0

    @property
    def scenario_key(self) -> str:
        """Scenario key, and value if any, that corresponds to the option; empty for an option not accepted."""
        return ".".join(self.path) + (f": {self.value}" if self.value else "")


#: Arguments of ``pipelining_ops.pipeline`` without a scenario key, including old names.
OTHER_ARGUMENTS: Final = (
    GraphcoreOption("pipeline_depth", "the old name of gradient_accumulation_count: use gradient_accumulation_count"),
    GraphcoreOption(
        "inputs",
        "only in `ipusim.ipu`: in a scenario all inputs are data, and the learning rate is an option of the optimizer",
    ),
    GraphcoreOption(
        "gradient_accumulation_for_captured_grads",
        "only in `ipusim.ipu`, without effect: functions capture no gradients here",
    ),
)
#: Reason why options that stop a run on floating-point exceptions have no effect.
_NEVER_STOPS: Final = "no operation stops a run: the run's notes name the first value that is not finite"
#: Reason why options of the scheduler have no effect.
_PROGRAM_ORDER: Final = "operations run in program order"
#: Attributes of ``IPUConfig`` without a scenario key, as no simulation depends on them.
OTHER_ATTRIBUTES: Final = tuple(
    GraphcoreOption(name, effect)
    for name, effect in {
        "serialization_output_folder": "ipusim compiles nothing and has no executable to save",
        "compilation_poplar_options": "ipusim compiles nothing with Poplar",
        "gcl_poplar_options": "collectives run with the machine's algorithms",
        "experimental.always_rearrange_copies_on_the_host": "a host copy takes as long in any layout",
        "experimental.enable_prng_stability": "no stochastic rounding: NumPy rounds to nearest",
        "experimental.enable_remote_buffer_embedding": "tables of host embeddings lie in the host's "
        "memory, and the host looks them up",
        "floating_point_behaviour.inv": _NEVER_STOPS,
        "floating_point_behaviour.div0": _NEVER_STOPS,
        "floating_point_behaviour.oflo": _NEVER_STOPS,
        "floating_point_behaviour.esr": "no stochastic rounding: NumPy rounds to nearest",
        "floating_point_behaviour.nanoo": "NumPy's half precision overflows to infinity",
        "floating_point_behaviour.set_all": "its options have no effect",
        "matmuls.clear_pass_type": "products are planned only by their shapes, in all passes",
        "norms.use_stable_statistics": "the mean is always subtracted before the variance is computed",
        "optimizations.prefetch_data_streams": "the depth of infeeds is `infeed.prefetch_depth`",
        "optimizations.combine_embedding_lookups": "each lookup is an operation of its own",
        "optimizations.combine_matmuls": "each product is an operation of its own",
        "optimizations.enable_graph_outlining": "code is not compiled; its size is estimated as outlined code",
        "optimizations.merge_infeed_io_copies": "the copies of an element are always merged",
        "optimizations.maximum_reduce_scatter_buffer_size": "each reduce-scatter is a separate collective",
        "optimizations.maximum_reduce_many_buffer_size": "each reduction is an operation of its own",
        "optimizations.maximum_all_gather_buffer_size": "each all-gather is a separate collective",
        "optimizations.maximum_inter_ipu_copies_buffer_size": "all copies of a time-step are merged, at any size",
        "optimizations.maximum_send_recv_cluster_size": "inputs of host computations are sent at once",
        "optimizations.merge_remote_buffers": "remote memory is counted in bytes, for any number of buffers",
        "optimizations.enable_gather_simplifier": "embeddings have one form of lookup",
        "optimizations.enable_dynamic_slice_replacement": "slices have one form",
        "optimizations.triangular_solve_expander_block_size": "there is no triangular solver",
        "optimizations.cholesky_block_size": "there is no Cholesky factoriser",
        "optimizations.enable_fast_math": "no operation is transformed",
        "optimizations.math.fast": "no operation is transformed",
        "optimizations.math.dot_strength": "no operation is transformed",
        "pooling.poplar_options": "pooling takes as long under any plan",
        "slices.poplar_options": "slices take as long under any plan",
        "scheduling.algorithm": _PROGRAM_ORDER,
        "scheduling.maximum_scheduler_lookahead_depth": _PROGRAM_ORDER,
        "scheduling.maximum_scheduler_search_space_size": _PROGRAM_ORDER,
        "norms.experimental.distributed_batch_norm_replica_group_size": "layers take statistics within each replica; "
        "in Python over this number of replicas",
    }.items()
)


#: Graphcore's optimizers without a counterpart in a scenario.
OTHER_OPTIMIZERS: Final = (
    GraphcoreOption("CrossReplicaOptimizer", "a scenario's replicas always average their gradients"),
    GraphcoreOption(
        "GradientAccumulationOptimizerV2", "the count in a scenario is `pipeline.gradient_accumulation_count`"
    ),
    GraphcoreOption("ShardedOptimizer", "variables are always updated on their IPUs"),
)


@cache
def arguments() -> tuple[GraphcoreOption, ...]:
    """Return the arguments of ``pipelining_ops.pipeline`` with a scenario key, in schema order."""
    return tuple(_options_of(Options, (), Argument))


@cache
def attributes() -> tuple[GraphcoreOption, ...]:
    """Return the attributes of ``IPUConfig`` with a scenario key, in schema order."""
    return tuple(_options_of(Options, (), Attribute))


def instead_of(key: str) -> str:
    """Return a hint at the scenario's counterpart of a Graphcore option.

    ``key`` is the option's name, or the end of its name. Empty for any other key.
    """
    rows = (*arguments(), *attributes(), *OTHER_ARGUMENTS, *OTHER_ATTRIBUTES)
    matches = [row for row in rows if key in (row.name, row.name.split(".")[-1])]
    if len(matches) != 1:
        return ""
    (row,) = matches
    meaning = f"{row.scenario_key} here" if row.scenario_key else f"no key here: {row.effect}"
    return f"; Graphcore's {row.name} is {meaning}"


@cache
def optimizers() -> tuple[GraphcoreOption, ...]:
    """Return optimizers with a scenario counterpart, and the wrapper of an optimizer."""
    kinds = [
        GraphcoreOption(row.graphcore, row.doc, ("optimizer", "type"), row.kind)
        for row in table.rows()
        if row.graphcore
    ]
    wrapper = row_of(GradientMap)
    return (*kinds, GraphcoreOption(wrapper.graphcore, wrapper.doc, ("optimizer", wrapper.kind)))


def _options_of(
    node: type[Node], prefix: tuple[str, ...], mark_class: type[GraphcoreName]
) -> Iterator[GraphcoreOption]:
    for key, field in node.model_fields.items():
        path = (*prefix, key)
        kind, optional = _without_none(field.annotation)
        for mark in field.metadata:
            if isinstance(mark, mark_class):
                name = mark.name or ".".join(path[1:])
                default = None if field.is_required() else field.get_default(call_default_factory=True)
                least = next((int(str(limit.ge)) for limit in field.metadata if isinstance(limit, Ge)), 0)
                effect = mark.effect or field.description or ""
                yield GraphcoreOption(name, effect, path, kind=kind, optional=optional, default=default, least=least)
        if isinstance(kind, type) and issubclass(kind, Node):
            yield from _options_of(kind, path, mark_class)


def _without_none(hint: Any) -> tuple[Any, bool]:
    """Return a hint's type without None and annotations, and whether None is allowed."""
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    kinds = [member for member in get_args(hint) if member is not type(None)]
    if len(kinds) > 1:
        return hint, True
    kind = get_args(kinds[0])[0] if hasattr(kinds[0], "__metadata__") else kinds[0]
    # Graphcore's own option is the number or the truth value where a scenario can say more.
    if get_origin(kind) in (Union, UnionType) and int in get_args(kind):
        return int, True
    return bool if any(get_args(member)[:1] == (bool,) for member in get_args(kind)) else kind, True
