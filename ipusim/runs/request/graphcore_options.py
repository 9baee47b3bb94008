"""Graphcore's options of a pipeline: the scenario key of each, or why there is none.

Options with a key are read from the schema's annotations. A scenario that names an option without a key is refused,
so that no option is silently ignored.
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
    """One of Graphcore's options.

    Attributes:
        name: Graphcore's name.
        effect: its effect here, or the alternative where it is not accepted.
        path: its key in a scenario; empty where it is not accepted.
        value: the value of that key that corresponds to it; empty where the key itself does.
        kind: the type of its value, None left out: Python's own, or a section's class.
        optional: whether None means a default that is determined later.
        default: its value where it is left out; None also for a required option.
        least: the lower bound of a whole number.
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
    def said(self) -> str:
        """The key, and value if any, of a scenario that corresponds to it; empty where it is not accepted."""
        return ".".join(self.path) + (f": {self.value}" if self.value else "")


#: Arguments of ``pipelining_ops.pipeline``, old names included, that are no key of a scenario.
OTHER_ARGUMENTS: Final = (
    GraphcoreOption("pipeline_depth", "the old name of gradient_accumulation_count, which is the one to use"),
    GraphcoreOption(
        "inputs",
        "of `ipusim.ipu` only: in a scenario all values come through the data, and a learning rate is the optimizer's",
    ),
    GraphcoreOption(
        "gradient_accumulation_for_captured_grads",
        "of `ipusim.ipu` only, without effect: gradients are not captured by functions here",
    ),
)
_NEVER_STOPS: Final = "no operation stops a run: its notes name the first value that is not finite"
_AS_WRITTEN: Final = "operations run in the order in which they are written"
#: Attributes of ``IPUConfig`` that are no key: nothing that is simulated depends on them.
OTHER_ATTRIBUTES: Final = tuple(
    GraphcoreOption(name, effect)
    for name, effect in {
        "serialization_output_folder": "nothing is compiled, so that there is no executable to keep",
        "compilation_poplar_options": "Poplar does not compile anything here",
        "gcl_poplar_options": "collectives run by the machine's own algorithms",
        "experimental.always_rearrange_copies_on_the_host": "a host copy takes as long in any layout",
        "experimental.enable_prng_stability": "no stochastic rounding: NumPy rounds to nearest",
        "experimental.enable_remote_buffer_embedding": "tables of host embeddings lie in the host's "
        "memory, and the host looks them up",
        "floating_point_behaviour.inv": _NEVER_STOPS,
        "floating_point_behaviour.div0": _NEVER_STOPS,
        "floating_point_behaviour.oflo": _NEVER_STOPS,
        "floating_point_behaviour.esr": "no stochastic rounding: NumPy rounds to nearest",
        "floating_point_behaviour.nanoo": "NumPy's half precision overflows to infinity",
        "floating_point_behaviour.set_all": "none of those that it sets has an effect",
        "matmuls.clear_pass_type": "products are planned by their shapes alone, in any pass",
        "norms.use_stable_statistics": "the mean is always taken off before the variance is computed",
        "optimizations.prefetch_data_streams": "infeeds prefetch as deep as `infeed.prefetch_depth` says",
        "optimizations.combine_embedding_lookups": "each lookup is an operation of its own",
        "optimizations.combine_matmuls": "each product is an operation of its own",
        "optimizations.enable_graph_outlining": "code is not compiled, and is estimated as if it were outlined",
        "optimizations.merge_infeed_io_copies": "the copies of an element are one already",
        "optimizations.maximum_reduce_scatter_buffer_size": "each reduce-scatter is a collective of its own",
        "optimizations.maximum_inter_ipu_copies_buffer_size": "all copies of a time-step are one, however large",
        "optimizations.maximum_send_recv_cluster_size": "what the host computes in a pass is sent there at once",
        "optimizations.merge_remote_buffers": "remote memory is counted in bytes, however many buffers they are in",
        "optimizations.enable_gather_simplifier": "embeddings are looked up in one way",
        "optimizations.triangular_solve_expander_block_size": "there is no triangular solver",
        "optimizations.cholesky_block_size": "there is no Cholesky factoriser",
        "optimizations.enable_fast_math": "no operation is transformed",
        "optimizations.math.fast": "no operation is transformed",
        "optimizations.math.dot_strength": "no operation is transformed",
        "pooling.poplar_options": "pooling takes as long under any plan",
        "scheduling.algorithm": _AS_WRITTEN,
        "scheduling.maximum_scheduler_lookahead_depth": _AS_WRITTEN,
        "scheduling.maximum_scheduler_search_space_size": _AS_WRITTEN,
        "norms.experimental.distributed_batch_norm_replica_group_size": "layers take the statistics of each "
        "replica; in Python they are taken over so many",
    }.items()
)


#: Optimizers of Graphcore's that have no counterpart in a scenario.
OTHER_OPTIMIZERS: Final = (
    GraphcoreOption("CrossReplicaOptimizer", "a scenario's replicas average their gradients without being asked to"),
    GraphcoreOption("GradientAccumulationOptimizerV2", "a scenario's count is `pipeline.gradient_accumulation_count`"),
    GraphcoreOption("ShardedOptimizer", "variables are updated on the IPUs that they are on without being asked to"),
)


@cache
def arguments() -> tuple[GraphcoreOption, ...]:
    """Return the arguments of ``pipelining_ops.pipeline`` that are keys, in the schema's order."""
    return tuple(_rows(Options, (), Argument))


@cache
def attributes() -> tuple[GraphcoreOption, ...]:
    """Return the attributes of ``IPUConfig`` that are keys, in the schema's order."""
    return tuple(_rows(Options, (), Attribute))


def instead_of(key: str) -> str:
    """Return a hint at the scenario's counterpart of a key that is the name of one option of Graphcore's, or its end.

    The hint is empty for any other key.
    """
    rows = (*arguments(), *attributes(), *OTHER_ARGUMENTS, *OTHER_ATTRIBUTES)
    matches = [row for row in rows if key in (row.name, row.name.split(".")[-1])]
    if len(matches) != 1:
        return ""
    (row,) = matches
    return f"; Graphcore's {row.name} is {f'{row.said} here' if row.said else f'no key here: {row.effect}'}"


@cache
def optimizers() -> tuple[GraphcoreOption, ...]:
    """Return the optimizers with a counterpart in a scenario, and the wrapper of an optimizer."""
    kinds = [
        GraphcoreOption(row.graphcore, row.doc, ("optimizer", "type"), row.kind)
        for row in table.rows()
        if row.graphcore
    ]
    wrapper = row_of(GradientMap)
    return (*kinds, GraphcoreOption(wrapper.graphcore, wrapper.doc, ("optimizer", wrapper.kind)))


def _rows(node: type[Node], above: tuple[str, ...], said: type[GraphcoreName]) -> Iterator[GraphcoreOption]:
    for key, field in node.model_fields.items():
        path = (*above, key)
        kind, optional = _without_none(field.annotation)
        for mark in field.metadata:
            if isinstance(mark, said):
                name = mark.name or ".".join(path[1:])
                default = None if field.is_required() else field.get_default(call_default_factory=True)
                least = next((int(str(bound.ge)) for bound in field.metadata if isinstance(bound, Ge)), 0)
                effect = mark.effect or field.description or ""
                yield GraphcoreOption(name, effect, path, kind=kind, optional=optional, default=default, least=least)
        if isinstance(kind, type) and issubclass(kind, Node):
            yield from _rows(kind, path, said)


def _without_none(hint: Any) -> tuple[Any, bool]:
    """Return the type of a hint without None and annotations, and whether the hint includes None."""
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
