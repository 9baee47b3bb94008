"""List the dotted names that a program may import, with ipusim's or an installed object for each name."""

from __future__ import annotations

from typing import Final

#: Row of the table: a name's object as ``module`` or ``module:attribute``, or a tuple of modules that a face combines,
#: in order of precedence.
Row = str | tuple[str, ...]

_OURS: Final = "ipusim.ipu"
_SWITCHES: Final = f"{_OURS}.imports.switches"
_KERAS_SOURCE: Final = "tf_keras.src"

#: Names in TensorFlow 1 and 2 with ipusim's objects. TensorFlow's own functions would change the process for good.
_REPLACED_NAMES: Final[dict[str, Row]] = {
    "device": f"{_OURS}.scopes:device",
    "disable_v2_behavior": f"{_SWITCHES}:version_1",
    "disable_eager_execution": f"{_SWITCHES}:graphs",
    "enable_eager_execution": f"{_SWITCHES}:eager",
    "enable_v2_behavior": f"{_SWITCHES}:eager",
    "disable_resource_variables": f"{_SWITCHES}:no_change",
    "disable_control_flow_v2": f"{_SWITCHES}:no_change",
    "compat": ("tensorflow.compat",),
    "estimator": f"{_OURS}.estimators",
    "train.Saver": f"{_OURS}.traced.savers:Saver",
}
#: Functions that list devices.
_DEVICE_LISTS: Final[dict[str, Row]] = {
    f"config.{room}{name}": f"{_OURS}.imports.devices:{name}"
    for room in ("", "experimental.")
    for name in ("list_physical_devices", "list_logical_devices")
}
#: Graphcore's modules that need no graph built by the program.
_COMMON_MODULES: Final = "autoshard config functional_ops keras"
#: Graphcore's other modules, with which programs build and run graphs of TensorFlow.
_GRAPH_MODULES: Final = """
    gradient_accumulation ipu_compiler ipu_infeed_queue ipu_outfeed_queue ipu_strategy loops optimizers
    pipelining_ops rnn_ops scopes slicing_ops
    all_to_all_op cross_replica_ops custom_ops dataset_benchmark distributed embedding_ops horovod image_ops
    internal_ops ipu_estimator ipu_pipeline_estimator ipu_run_config ipu_session_run_hooks math_ops nn_ops
    normalization_ops rand_ops reduce_scatter_op replication_ops sharding statistics_ops summary_ops utils
"""
#: Modules with strategies for several hosts.
_STRATEGIES: Final = """
    distributed.ipu_horovod_strategy distributed.popdist_strategy horovod.ipu_horovod_strategy
    horovod.ipu_multi_replica_strategy horovod.popdist_strategy ipu_multi_worker_strategy
"""
#: Modules that make up ``tensorflow.python``, as in the releases that Graphcore's programs are written for.
_PYTHON_MODULES: Final = ("tensorflow.python", "tensorflow.python.framework", "tensorflow.python.ops")
#: Modules with TensorFlow 1's native functions, including the checkpoint reader.
_NATIVE_MODULES: Final = ("tensorflow.python.pywrap_tensorflow", "tensorflow.python.training.py_checkpoint_reader")
#: Batch normalisation with half-precision parameters.
_BATCH_NORM: Final = f"{_OURS}.imports.batch_norm:fused_batch_norm"
#: Package of Graphcore's plugin for TensorFlow.
_PLUGIN: Final = "tensorflow.compiler.plugin.poplar"
#: Rows of Graphcore's plugin.
_PLUGIN_ROWS: Final[dict[str, Row]] = {
    "tensorflow.compiler.plugin": (),
    f"{_PLUGIN}.driver.trace_pb2.IpuTraceEvent": f"{_OURS}.utils:IpuTraceEvent",
    f"{_PLUGIN}.ops.gen_ipu_ops.ipu_event_trace": f"{_OURS}.summary_ops:event_trace",
    f"{_PLUGIN}.ops.gen_poputil_ops": f"{_OURS}.gen_poputil_ops",
}
#: Removed source modules of Keras from which programs import layers.
_KERAS_LAYER_MODULES: Final = "convolutional core embeddings merge normalization pooling recurrent"
#: Modules of control flow; in earlier releases the first module had all functions.
_CONTROL: Final = "control_flow_ops while_loop cond control_flow_assert control_flow_case"
#: Rows of ``tensorflow.python``.
_PYTHON_ROWS: Final[dict[str, Row]] = {
    "tensorflow.python": _PYTHON_MODULES,
    "tensorflow.python.pywrap_tensorflow": _NATIVE_MODULES,
    "tensorflow.python.training.training_ops": "tensorflow.python.ops.gen_training_ops",
    "tensorflow.python.client.device_lib.list_local_devices": f"{_OURS}.imports.devices:list_local_devices",
    "tensorflow.python.distribute.distribution_strategy_context": "tensorflow.python.distribute.distribute_lib",
    "tensorflow.python.ops.control_flow_ops": tuple(f"tensorflow.python.ops.{name}" for name in _CONTROL.split()),
    "tensorflow.python.ops.array_ops": tuple(f"tensorflow.python.ops.array_ops{end}" for end in ("", "_stack")),
    "tensorflow.python.framework.ops.array_ops": "tensorflow.python.ops.array_ops",
}
#: Package with layers of version 1.
_V1_LAYERS: Final = f"{_KERAS_SOURCE}.legacy_tf_layers"
#: Modules in the package of version 1's layers.
_V1_LAYER_MODULES: Final = "convolutional core normalization pooling"
#: Names in ``tf.data`` that TensorFlow has removed, and classes whose objects lack attributes that programs set.
_ABSENT_NAMES: Final = """
    Options experimental.StatsAggregator experimental.bytes_produced_stats experimental.latency_stats
"""
#: Rows of ``tensorflow.contrib``, with objects from version 2.
_CONTRIB_ROWS: Final[dict[str, Row]] = {
    "tensorflow.contrib": (),
    "tensorflow.contrib.distribute": f"{_OURS}.runtime.distribute",
    **{
        f"tensorflow.contrib.{name}": f"{_OURS}.imports.contrib:{name}"
        for name in ("data", "framework", "layers", "rnn", "tpu")
    },
    "tensorflow.contrib.framework.python.framework.checkpoint_utils": "tensorflow.python.training.checkpoint_utils",
    "tensorflow.contrib.compiler": (),
    "tensorflow.contrib.compiler.xla": f"{_OURS}.ipu_compiler",
}
#: Modules of TensorFlow's estimators.
_ESTIMATOR_MODULES: Final = "estimator estimator_lib model_fn run_config training"
#: Modules of Graphcore's addons for TensorFlow 1 with the same content as ``rnn_ops``.
_ADDED_LAYERS: Final = "layers layers.rnn_ops v1.layers v1.layers.rnn_ops"
#: Modules inside Graphcore's package ``optimizers``, each with the content of the whole package.
_OPTIMIZERS: Final = "cross_replica_optimizer gradient_accumulation_optimizer map_gradient_optimizer sharded_optimizer"


def graphcore_rows(package: str) -> dict[str, Row]:
    """Return the rows of Graphcore's package under a package name.

    Example:
        >>> graphcore_rows("tensorflow.python.ipu")["tensorflow.python.ipu.loops"]
        'ipusim.ipu.loops'
    """
    modules: dict[str, Row] = {name: f"{_OURS}.{name}" for name in _COMMON_MODULES.split()}
    modules |= {name: f"{_OURS}.{name}" for name in _GRAPH_MODULES.split()}
    modules |= dict.fromkeys(_OPTIMIZERS.split(), f"{_OURS}.optimizers")
    modules |= {f"optimizers.{name}": f"{_OURS}.optimizers" for name in _OPTIMIZERS.split()}
    modules |= dict.fromkeys(_STRATEGIES.split(), f"{_OURS}.host_strategies")
    modules["distributed.host_collective_ops"] = modules["distributed"]
    modules["data.ops.dataset_ops"] = f"{_OURS}.dataset_ops"
    modules["outlined_function"] = f"{_OURS}.functional_ops:outlined_function"
    rows: dict[str, Row] = {package: (), f"{package}.ops": (), f"{package}.ipu_optimizer": f"{_OURS}.optimizers"}
    rows |= {f"{package}.{name}": row for name, row in modules.items()}
    rows |= {f"{package}.ops.{name}": row for name, row in modules.items() if name.endswith(("_op", "_ops"))}
    return rows


def rows_for(major: int) -> dict[str, Row]:
    """Return all rows for programs of TensorFlow 1 or 2."""
    keras = f"tf_keras.api._v{major}.keras"
    version: dict[int, tuple[str, ...]] = {1: ("tensorflow.compat.v1", "tensorflow"), 2: ("tensorflow",)}
    rows: dict[str, Row] = {
        "tensorflow": version[major],
        "tensorflow.compat.v1": ("tensorflow.compat.v1",),
        **_CONTRIB_ROWS,
        "keras": (keras, _KERAS_SOURCE),
        "tf_keras": (keras, _KERAS_SOURCE),
        "tensorflow.keras": (keras,),
        "tensorflow.python.keras": (keras, _KERAS_SOURCE),
        "tensorflow.python.keras.backend": (f"{keras}.backend", f"{_KERAS_SOURCE}.backend"),
        "tensorflow.compat.v1.keras": ("tf_keras.api._v1.keras",),
        "tensorflow.compat.v1.nn.fused_batch_norm": _BATCH_NORM,
        **_PYTHON_ROWS,
        "tensorflow.python.layers.layers": tuple(f"{_V1_LAYERS}.{name}" for name in _V1_LAYER_MODULES.split()),
        **{f"tensorflow.python.layers.{name}": f"{_V1_LAYERS}.{name}" for name in _V1_LAYER_MODULES.split()},
        "tensorflow.python.estimator": f"{_OURS}.estimators",
        **{f"tensorflow.python.estimator.{name}": f"{_OURS}.estimators" for name in _ESTIMATOR_MODULES.split()},
        "horovod": f"{_OURS}.horovod",
        "horovod.tensorflow": f"{_OURS}.horovod",
        "popdist": f"{_OURS}.popdist",
        "popdist.tensorflow": f"{_OURS}.popdist",
        "ipu_tensorflow_addons": (),
        "ipu_tensorflow_addons.keras.layers": (f"{_OURS}.keras.addons", f"{_OURS}.keras.layers"),
        "ipu_tensorflow_addons.keras.optimizers": (f"{_OURS}.keras.optimizers", f"{keras}.optimizers"),
        "ipu_tensorflow_addons.v1": (),
        **{f"ipu_tensorflow_addons.{name}": f"{_OURS}.rnn_ops" for name in _ADDED_LAYERS.split()},
        "tensorflow._api.v1": ("tensorflow.compat.v1",),
        "tensorflow._api.v1.compat.v1": ("tensorflow.compat.v1",),
        **_PLUGIN_ROWS,
    }
    if major == 1:
        rows["tensorflow.pywrap_tensorflow"] = _NATIVE_MODULES
        rows["tensorflow.nn.fused_batch_norm"] = _BATCH_NORM
    if major == 2:
        rows["tensorflow.optimizers"] = (f"{keras}.optimizers.legacy", f"{keras}.optimizers")
    for parent in ("tensorflow", "tensorflow.compat.v1"):
        rows |= {f"{parent}.{name}": row for name, row in (_REPLACED_NAMES | _DEVICE_LISTS).items()}
        rows[f"{parent}.distribute"] = (f"{_OURS}.runtime.distribute", f"{parent}.distribute")
        rows |= {
            f"{parent}.data.{name}": f"{_OURS}.imports.removed:{name.split('.')[-1]}" for name in _ABSENT_NAMES.split()
        }
        rows[f"{parent}.train.Server"] = f"{_OURS}.runtime.distribute:Server"
        rows[f"{parent}.nn.compute_average_loss"] = f"{_OURS}.host_strategies:compute_average_loss"
        rows.setdefault(f"{parent}.compat.v1", ("tensorflow.compat.v1",))
    for parent in ("keras", "tf_keras", "tensorflow.python.keras"):
        rows[f"{parent}.optimizer_v2"] = (f"{_KERAS_SOURCE}.optimizers.legacy",)
    for parent in ("keras", "tf_keras", "tensorflow.keras", "tensorflow.python.keras", "tensorflow.compat.v1.keras"):
        rows[f"{parent}.datasets"] = (f"{_OURS}.keras.datasets", f"{keras}.datasets")
        rows[f"{parent}.ipu"] = f"{_OURS}.keras"
        # Optimizers of the programs' releases, which take `decay` and `lr`.
        rows[f"{parent}.optimizers"] = (f"{keras}.optimizers.legacy", f"{keras}.optimizers")
    rows |= graphcore_rows("tensorflow.python.ipu") | graphcore_rows("tensorflow.contrib.ipu")
    rows |= {f"tensorflow.python.keras.layers.{name}": (f"{keras}.layers",) for name in _KERAS_LAYER_MODULES.split()}
    # Name of TensorFlow's package in releases around 2.0.
    rows |= {f"tensorflow_core{name.removeprefix('tensorflow')}": rows[name] for name in rows if is_tensorflow(name)}
    return rows


def is_tensorflow(name: str) -> bool:
    """Tell whether a dotted name is TensorFlow's package or inside it."""
    return name.partition(".")[0] == "tensorflow"
