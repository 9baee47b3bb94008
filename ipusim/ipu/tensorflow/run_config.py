"""How an estimator runs: TensorFlow 1's ``RunConfig``."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, Final, Generic, Self, TypeVar

from ipusim.base.errors import ProgramError
from ipusim.ipu.ipu_strategy import HostStrategy
from ipusim.ipu.runtime import checks
from ipusim.ipu.tensorflow.distribute import DistributeConfig, cluster_config, cluster_of, read_only

T = TypeVar("T")


class _Default:
    """That an argument was not given."""

    def __repr__(self) -> str:
        return "USE_DEFAULT"


_DEFAULT: Final = _Default()
#: Seconds between checkpoints where no argument says how often.
_SECONDS: Final = 600


class _Argument(Generic[T]):
    """The value of an argument, to be read."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, config: RunConfig, owner: type) -> T:
        result: T = config._arguments[self._name]
        return result


class RunConfig:
    """Where and how often checkpoints are saved, and what is logged.

    Args:
        model_dir: folder of the checkpoints.
        tf_random_seed: of all draws.
        save_checkpoints_steps, save_checkpoints_secs: how often; one of them, or None for neither. By default every
            600 seconds of this computer's clock.
        keep_checkpoint_max: checkpoints that stay, None or 0 for all.
        keep_checkpoint_every_n_hours: how often one stays for good.
        log_step_count_steps: how often the loss and the steps a second are logged.
        train_distribute: a strategy of several hosts, such as IPUMultiWorkerStrategy, which are the workers; each has
            made this on itself. They average their gradients, as TensorFlow's estimators do, so that a model function's
            loss is the mean over the samples that one worker has; the loss that hooks see is the mean over the workers.
        eval_distribute: a strategy whose hosts evaluate together, each on its data.
        experimental_distribute: a DistributeConfig, which says either in its place.
        save_summary_steps, session_config, device_fn, protocol, experimental_max_worker_delay_secs,
            session_creation_timeout_secs: without effect: there are no summaries, servers, and sessions that wait.

    Raises ProgramError in TensorFlow's words, ProgramTypeError for what is no strategy of several hosts.
    """

    model_dir = _Argument[str | None]()
    tf_random_seed = _Argument[int | None]()
    save_summary_steps = _Argument[int | None]()
    save_checkpoints_steps = _Argument[int | None]()
    save_checkpoints_secs = _Argument[float | None]()
    session_config = _Argument[object]()
    keep_checkpoint_max = _Argument[int | None]()
    keep_checkpoint_every_n_hours = _Argument[float]()
    log_step_count_steps = _Argument[int | None]()
    experimental_distribute = _Argument[DistributeConfig | None]()
    train_distribute: HostStrategy | None = read_only("_strategies.train_distribute", "The strategy that trains.")
    eval_distribute: HostStrategy | None = read_only("_strategies.eval_distribute", "The strategy that evaluates.")
    cluster_spec: Mapping[str, Any] = read_only(
        "_cluster.cluster_spec", "Addresses by the type of task, as TF_CONFIG or the strategy that trains says."
    )
    is_chief: bool = read_only("_cluster.is_chief", "Whether this process is the chief.")
    task_type: str = read_only("_cluster.task_type", "The type of this process's task.")
    task_id: int = read_only("_cluster.task_id", "Which of its type this process is.")
    num_ps_replicas: int = read_only("_cluster.num_ps_replicas", "Servers of parameters.")
    num_worker_replicas: int = read_only("_cluster.num_worker_replicas", "Workers, the chief among them.")

    def __init__(
        self,
        model_dir: str | PathLike[str] | None = None,
        tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100,
        save_checkpoints_steps: Any = _DEFAULT,
        save_checkpoints_secs: Any = _DEFAULT,
        session_config: object = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000,
        log_step_count_steps: int | None = 100,
        train_distribute: object = None,
        device_fn: object = None,
        protocol: str | None = None,
        eval_distribute: object = None,
        experimental_distribute: object = None,
        experimental_max_worker_delay_secs: int | None = None,
        session_creation_timeout_secs: int = 7200,
    ) -> None:
        """Check the arguments."""
        options = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        steps, seconds = save_checkpoints_steps, save_checkpoints_secs
        if steps is _DEFAULT and seconds is _DEFAULT:
            steps, seconds = None, _SECONDS
        elif seconds is _DEFAULT:
            seconds = None
        elif steps is _DEFAULT:
            steps = None
        elif steps is not None and seconds is not None:
            raise ProgramError("`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set.")
        self._arguments = options | {"save_checkpoints_steps": steps, "save_checkpoints_secs": seconds}
        self._arguments["model_dir"] = None if model_dir is None else _path(model_dir)
        self._check()
        self._strategies = _strategies(train_distribute, eval_distribute, experimental_distribute)
        self._cluster = cluster_config() if self.train_distribute is None else cluster_of(self.train_distribute)

    def _check(self) -> None:
        for name in ("save_summary_steps", "save_checkpoints_steps", "keep_checkpoint_max", "tf_random_seed"):
            if self._arguments[name] is not None:
                checks.whole(name, self._arguments[name])
        if self.log_step_count_steps is not None:
            checks.whole("log_step_count_steps", self.log_step_count_steps, 1)
        if self.save_checkpoints_secs is not None:
            checks.not_negative("save_checkpoints_secs", self.save_checkpoints_secs)
        checks.not_negative("keep_checkpoint_every_n_hours", self.keep_checkpoint_every_n_hours)

    def replace(self, **kwargs: Any) -> Self:
        """Return another in which these arguments are others; raises as the class does."""
        for name in kwargs:
            if name not in self._arguments:
                raise ProgramError(f"Replacing {name} is not supported. Allowed properties: {sorted(self._arguments)}")
        chosen = self._arguments | kwargs
        if "save_checkpoints_steps" in kwargs and "save_checkpoints_secs" not in kwargs:
            chosen["save_checkpoints_secs"] = None
        if "save_checkpoints_secs" in kwargs and "save_checkpoints_steps" not in kwargs:
            chosen["save_checkpoints_steps"] = None
        return self._with_arguments(chosen)

    def _with_arguments(self, options: Mapping[str, Any]) -> Self:
        return type(self)(**options)

    @property
    def master(self) -> str:
        """Address of this process; empty without a cluster."""
        return self._cluster.master

    @property
    def evaluation_master(self) -> str:
        """No address: evaluation is this process's own."""
        return ""


def _strategies(train: Any, evaluate: Any, both: Any) -> DistributeConfig:
    """Return the strategies of training and evaluation; raises ProgramError in TensorFlow's words for one set twice."""
    if both is not None and not isinstance(both, DistributeConfig):
        checks.wrong_type("experimental_distribute", "a DistributeConfig, or None", both)
    result = []
    for name, value in (("train_distribute", train), ("eval_distribute", evaluate)):
        inside = None if both is None else getattr(both, name)
        if value is not None and inside is not None:
            raise ProgramError(f"Either `{name}` or `experimental_distribute.{name}` can be set.")
        strategy = inside if value is None else value
        if strategy is not None and not isinstance(strategy, HostStrategy):
            checks.wrong_type(name, "a strategy of several hosts, such as IPUMultiWorkerStrategy, or None", strategy)
        result.append(strategy)
    return DistributeConfig(*result)


def _path(model_dir: Any) -> str:
    result = checks.path("model_dir", model_dir)
    if not result:
        raise ProgramError("model_dir should be non-empty")
    return result
