"""Status of each name of Graphcore's API in ipusim: works, without effect, refused, or not yet supported."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache
from inspect import getmembers, isfunction, signature
from typing import Final

from ipusim.ipu.config import ExecutionProfileType, IPUConfig
from ipusim.ipu.runtime import ipu_options
from ipusim.ipu.runtime.options_table import ATTRIBUTES, WITHOUT_EFFECT
from reports.graphcore_names import CONFIG, Name, names


class Status(Enum):
    """Status of a name or an argument, in the words of the page on Graphcore's API."""

    WORKS = "works"
    NO_EFFECT = "taken, without effect"
    REFUSED = "refused"
    NOT_YET = "not yet"


@dataclass(frozen=True)
class Said:
    """Status with its reason, message, or difference from the reference."""

    status: Status
    why: str = ""


def _of_options() -> dict[str, Said]:
    """Return the configuration functions, or single arguments of these, that have no effect, with the reasons."""
    result = {}
    config = IPUConfig()
    for function, function_object in sorted(getmembers(ipu_options, isfunction)):
        arguments = signature(function_object).parameters
        paths = {entry: ATTRIBUTES[entry] for entry in arguments if entry in ATTRIBUTES}
        whys = {entry: config.get_attribute_metadata(path).without_effect for entry, path in paths.items()}
        whys |= {entry: WITHOUT_EFFECT[entry].reason for entry in arguments if entry in WITHOUT_EFFECT}
        path, distinct = f"ipu.utils.{function}", set(whys.values())
        if function.startswith("_") or not whys:
            continue
        if "" not in distinct:
            result[path] = Said(Status.NO_EFFECT, "; ".join(sorted(distinct)))
        else:
            result |= {f"{path}({entry})": Said(Status.NO_EFFECT, why) for entry, why in whys.items() if why}
    return result


#: Reasons of several entries in EXCEPTIONS.
_ALWAYS_THERE: Final = "both are always enabled"
_ONE_LOOP: Final = "the device runs every loop, in either form of TensorFlow's graph"
_BIASES: Final = "biases of gates start at one, of the candidate at zero, as in Graphcore's layer"
_ONE_CPU: Final = "a simulated host has one TensorFlow device"
_BY_PLACE: Final = "the seed of a draw follows from its position in the program"
_TABLE_ON_HOST: Final = "the host holds the table in one piece"
_OWN_OPTIONS: Final = "TensorFlow applies the options of a data set"
_SGD_ALONE: Final = "SGD, the only rule, has no state beside the table"
#: Modules and names of the estimators, which share their methods.
_ESTIMATORS: Final = (("ipu_estimator", "IPUEstimator"), ("ipu_pipeline_estimator", "IPUPipelineEstimator"))
#: Names without effect and refused names, unless ipusim's own objects say so. Keys of arguments look
#: like ``function(argument)`` or ``class(argument)``; tests check refusals and their messages.
EXCEPTIONS: Final = {
    **_of_options(),
    "ipu.pipelining_ops.pipeline(continuous_weight_updates)": Said(
        Status.REFUSED, "Continuous weight updates are currently not supported."
    ),
    "ipu.ipu_infeed_queue.IPUInfeedQueue.get_next": Said(
        Status.REFUSED,
        "`get_next()` is now obsolete as the IPUInfeedQueue is now automatically dequeued by the loop.",
    ),
    "ipu.pipelining_ops.pipeline(name)": Said(Status.WORKS, "files and charts have it"),
    "ipu.functional_ops.outlined_function": Said(
        Status.NO_EFFECT, "code is not compiled; its size is estimated as outlined code"
    ),
    "ipu.loops.repeat(use_while_v1)": Said(Status.NO_EFFECT, _ONE_LOOP),
    "ipu.loops.while_loop(use_while_v1)": Said(Status.NO_EFFECT, _ONE_LOOP),
    "ipu.scopes.frontend_attribute": Said(Status.WORKS, "operations carry the attribute, without effect on time"),
    "ipu.scopes.ipu_jit_scope": Said(Status.NO_EFFECT, "the whole program is compiled together"),
    "ipu.scopes.stochastic_rounding": Said(Status.NO_EFFECT, "NumPy rounds to nearest, and rounding changes no time"),
    "ipu.scopes.partials_type": Said(
        Status.REFUSED,
        "partials_type: expected float32, got float16: give partialsType in PipelineStageOptions or in "
        "IPUConfig.matmuls.poplar_options",
    ),
    **{
        f"ipu.{function}({argument})": Said(Status.NO_EFFECT, why)
        for function, argument, why in (
            ("utils.get_num_of_ipus_in_device", "device", _ONE_CPU),
            ("config.configure_ipu_system", "device", _ONE_CPU),
            ("config.IPUConfig.configure_ipu_system", "device", _ONE_CPU),
            ("config.get_ipu_config", "session", "a program has one configuration for all sessions"),
            ("distributed.popdist_strategy.PopDistStrategy", "enable_dataset_iterators", _ALWAYS_THERE),
            ("distributed.popdist_strategy.PopDistStrategy", "enable_keras_extensions", _ALWAYS_THERE),
            ("distributed.allreduce", "tensor_name", "hosts reduce in the same order under any name"),
            ("embedding_ops.HostEmbedding", "partition_strategy", _TABLE_ON_HOST),
            ("embedding_ops.create_host_embedding", "partition_strategy", _TABLE_ON_HOST),
            ("embedding_ops.HostEmbedding.register", "session", "a program has one table for all sessions"),
            ("embedding_ops.HostEmbeddingOptimizerSpec", "optimizer_name", _SGD_ALONE),
            ("embedding_ops.HostEmbeddingOptimizerSpec.create_slot_variables", "embedding_tensor", _SGD_ALONE),
            ("embedding_ops.HostEmbeddingOptimizerSpec.create_slot_variables", "name", _SGD_ALONE),
            ("embedding_ops.HostEmbeddingOptimizerSpec.create_register_instruction", "slot_vars", _SGD_ALONE),
            ("embedding_ops.HostEmbeddingOptimizerSpec.create_deregister_instruction", "slot_vars", _SGD_ALONE),
            ("embedding_ops.HostEmbeddingOptimizerSpec.create_lookup_instruction", "slot_vars", _SGD_ALONE),
            (
                "embedding_ops.HostEmbeddingOptimizerSpec.create_lookup_instruction",
                "partition_strategy",
                _TABLE_ON_HOST,
            ),
            ("embedding_ops.HostEmbeddingOptimizerSpec.create_lookup_instruction", "name", "the table has the name"),
            (
                "pipelining_ops.pipeline",
                "weight_update_poplar_options",
                "a weight update has only elementwise operations, which are not split",
            ),
            ("rnn_ops.PopnnDynamicGRU", "bias_initializer", _BIASES),
            ("rnn_ops.PopnnAUGRU", "bias_initializer", _BIASES),
            ("rand_ops.dropout", "**kwargs", "`ref` names the mask of a gradient, and ipusim draws the mask again"),
        )
    },
    **{
        f"ipu.keras.layers.{name}Normalization.call(training)": Said(
            Status.NO_EFFECT, "statistics always come from the sample"
        )
        for name in ("Group", "Instance", "Layer")
    },
    "ipu.keras.layers.Embedding.call(training)": Said(
        Status.NO_EFFECT, "the layer computes the same in training and inference"
    ),
    "ipu.ipu_run_config.IPURunConfig(ordinal)": Said(
        Status.REFUSED, "Only 1 device(s) available to choose from. You tried to pick a device at ordinal 1"
    ),
    **{
        f"ipu.normalization_ops.{name}_norm(training)": Said(Status.NO_EFFECT, "statistics always come from the sample")
        for name in ("group", "instance", "layer")
    },
    "ipu.custom_ops.precompiled_user_op(gp_path)": Said(
        Status.REFUSED, "gp_path: expected no codelets, because compiled ones do not run on simulated IPUs, got 'a.gp'"
    ),
    **{
        f"ipu.custom_ops.{name}": Said(
            Status.WORKS, "the library is a Python file, as compiled libraries do not run on simulated IPUs"
        )
        for name in ("cpu_user_operation", "precompiled_user_op")
    },
    "ipu.nn_ops.multi_conv": Said(Status.NO_EFFECT, "convolutions run one after another, each on all tiles of an IPU"),
    **{
        f"ipu.rnn_ops.{name}.call(training)": Said(
            Status.NO_EFFECT, "the layer computes the same in training and inference"
        )
        for name in ("PopnnAUGRU", "PopnnDynamicGRU", "PopnnGRU", "PopnnLSTM")
    },
    "ipu.cross_replica_ops.assume_equal_across_replicas": Said(
        Status.NO_EFFECT, "conditions of a simulated program may differ in replicas"
    ),
    "ipu.rand_ops.dropout(seed)": Said(Status.WORKS, "a whole number; two numbers have no effect"),
    **{
        f"ipu.{module}.{name}.{method}": Said(
            Status.REFUSED,
            "estimators export no models: checkpoints in model_dir hold the variables",
        )
        for module, name in _ESTIMATORS
        for method in ("experimental_export_all_saved_models", "export_saved_model", "export_savedmodel")
    },
    "ipu.ipu_run_config.IPURunConfig(compile_summary)": Said(
        Status.REFUSED,
        "Generating compilation summaries for the IPUEstimator through IPURunConfig.compile_summary is deprecated, is "
        "non-functional and will be removed in a future release. Use the PopVision suite of analysis tools to profile "
        "IPU programs.",
    ),
    "ipu.ipu_run_config.RunConfig(master)": Said(Status.NO_EFFECT, "estimators run in one process"),
    **{
        f"ipu.ipu_session_run_hooks.IPULoggingTensorHook({argument})": Said(
            Status.NO_EFFECT, "deprecated and without effect in Graphcore's class too"
        )
        for argument in ("feed_name", "replication_factor")
    },
    "ipu.sharding.propagate_sharding": Said(
        Status.NO_EFFECT, "operations outside a scope always run on the shard of their inputs"
    ),
    **dict.fromkeys(
        (
            "ipu.config.ExecutionProfileType",
            *(f"ipu.config.ExecutionProfileType.{kind.name}" for kind in ExecutionProfileType),
        ),
        Said(Status.NO_EFFECT, WITHOUT_EFFECT["profile_execution"].reason),
    ),
    "ipu.config.VerificationOptions": Said(Status.NO_EFFECT, WITHOUT_EFFECT["verification_options"].reason),
    **{
        f"ipu.ipu_{queue}_queue.{kind}({argument})": Said(Status.NO_EFFECT, why)
        for queue, kind, further_arguments in (
            ("infeed", "IPUInfeedQueue", ()),
            ("outfeed", "IPUOutfeedQueue", (("io_batch_size", "each element is sent as soon as it exists"),)),
        )
        for argument, why in (
            ("feed_name", "the object identifies the queue"),
            ("replication_factor", "device and program determine the replicas"),
            *further_arguments,
        )
    },
    "ipu.dataset_benchmark.dataset_benchmark(apply_options)": Said(Status.NO_EFFECT, _OWN_OPTIONS),
    "ipu.utils.export_dataset_to_file(feed_name)": Said(Status.NO_EFFECT, "arrays in the file have no names"),
    "ipu.utils.export_dataset_to_file(apply_options)": Said(Status.NO_EFFECT, _OWN_OPTIONS),
    "ipu.keras.layers.Dropout(seed)": Said(Status.NO_EFFECT, _BY_PLACE),
    **{
        f"ipu.keras.layers.{name}({argument})": Said(Status.NO_EFFECT, why)
        for name in ("PopnnGRU", "PopnnLSTM")
        for argument, why in (
            ("dropout_seed", _BY_PLACE),
            ("implementation", "the reference calls it unsupported"),
            ("unroll", "time steps always run one after another"),
        )
    },
    "ipu.utils.move_variable_initialization_to_cpu": Said(Status.NO_EFFECT, "initial values are drawn on the host"),
    "ipu.utils.reset_ipu_seed": Said(Status.NO_EFFECT, _BY_PLACE),
    **{
        f"ipu.{name}(add_ipu_cross_replica_reductions)": Said(
            Status.NO_EFFECT, "training programs reduce their gradients without this option"
        )
        for name in (
            "horovod.ipu_multi_replica_strategy.IPUMultiReplicaStrategy",
            "distributed.popdist_strategy.PopDistStrategy",
        )
    },
    **{
        f"ipu.{module}.{name}({argument})": Said(Status.WORKS, "hosts in one call must give the same name")
        for module, argument in (("horovod", "name"), ("distributed", "tensor_name"))
        for name in ("allgather", "broadcast")
    },
}
#: Functions and classes that also take their arguments in another release's order, inferred from the call.
IN_ANY_RELEASE: Final = frozenset(
    {
        "ipu.pipelining_ops.pipeline",
        "ipu.distributed.allgather",
        "ipu.distributed.allreduce",
        "ipu.distributed.broadcast",
    }
)


def said_of(name: Name) -> Said:
    """Return the status of a name."""
    here = name.here
    if here is None:
        return Said(Status.NOT_YET)
    if name.path in EXCEPTIONS:
        return EXCEPTIONS[name.path]
    if name.kind == "attribute" and here.without_effect:
        return Said(Status.NO_EFFECT, here.without_effect)
    if why := _without_effect().get(name.path) or _without_effect().get(name.path.rpartition(".")[0]):
        return Said(Status.NO_EFFECT, why)
    difference = name.differences().get("")
    return Said(Status.NOT_YET, difference) if difference else Said(Status.WORKS)


@cache
def _without_effect() -> dict[str, str]:
    """Return categories and enumerations whose attributes are all without effect, with the reasons."""
    whys: dict[str, set[str]] = {}
    for name in names():
        if name.kind == "attribute":
            kind = name.rest.removeprefix(": ").partition(" = ")[0]
            above = name.path.removeprefix(CONFIG).split(".")[:-1]
            paths = [CONFIG + ".".join(above[:count]) for count in range(1, len(above) + 1)]
            for path in (*paths, f"ipu.config.{kind}"):
                whys.setdefault(path, set()).add(name.here.without_effect)
    return {path: "; ".join(sorted(result)) for path, result in whys.items() if "" not in result}


def said_of_arguments(name: Name) -> dict[str, Said]:
    """Return the status of each argument of a name; unless the name works, its arguments share its status."""
    name_status, differences = said_of(name), name.differences() if name.here is not None else {}
    result = {}
    for argument in name.arguments:
        key = f"{name.path}({argument.name})"
        if name_status.status is not Status.WORKS:
            result[argument.name] = Said(name_status.status)
        elif argument.name in differences and name.path not in IN_ANY_RELEASE:
            result[argument.name] = Said(Status.NOT_YET, differences[argument.name])
        elif key in EXCEPTIONS:
            result[argument.name] = EXCEPTIONS[key]
        else:
            result[argument.name] = Said(Status.WORKS)
    return result
