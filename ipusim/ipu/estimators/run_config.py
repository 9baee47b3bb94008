"""How an estimator runs: TensorFlow 1's ``RunConfig``."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, Final, Self

from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.distribute import cluster_config, cluster_of


class _Default:
    """That an argument was not given."""

    def __repr__(self) -> str:
        return "USE_DEFAULT"


_DEFAULT: Final = _Default()
#: Seconds between checkpoints where no argument says how often.
_SECONDS: Final = 600


class RunConfig:
    """Where and how often checkpoints and summaries are saved, and what is logged.

    Each argument of the constructor is an attribute; ``cluster_spec``, ``task_type``, ``task_id``, ``is_chief``,
    ``num_ps_replicas``, ``num_worker_replicas`` and ``master`` tell the cluster of ``TF_CONFIG``.
    """

    def __init__(
        self,
        model_dir: str | PathLike[str] | None = None,
        tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100,
        save_checkpoints_steps: Any = _DEFAULT,
        save_checkpoints_secs: Any = _DEFAULT,
        session_config: Any = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000,
        log_step_count_steps: int | None = 100,
        train_distribute: Any = None,
        device_fn: Any = None,
        protocol: str | None = None,
        eval_distribute: Any = None,
        experimental_distribute: Any = None,
        experimental_max_worker_delay_secs: int | None = None,
        session_creation_timeout_secs: int = 7200,
    ) -> None:
        """Check the arguments.

        Args:
            model_dir: folder of the checkpoints.
            tf_random_seed: seed of all draws.
            save_summary_steps: steps between summaries.
            save_checkpoints_steps, save_checkpoints_secs: how often; one of them, or None for neither. By default every
                600 seconds of this computer's clock.
            session_config: configuration of sessions.
            keep_checkpoint_max: checkpoints that stay, None or 0 for all.
            keep_checkpoint_every_n_hours: how often one stays for good.
            log_step_count_steps: how often the loss and the steps a second are logged.
            train_distribute, eval_distribute: strategies of several hosts.
            experimental_distribute: a configuration that says either in its place.
            device_fn, protocol, experimental_max_worker_delay_secs, session_creation_timeout_secs: without effect.

        Raises:
            ProgramError: in TensorFlow's words; ProgramTypeError for what is no strategy.
        """
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
        self._arguments: dict[str, Any] = options | {"save_checkpoints_steps": steps, "save_checkpoints_secs": seconds}
        self._arguments["model_dir"] = None if model_dir is None else _path(model_dir)
        self._check()
        self._strategies = {
            name: _strategy(name, options[name], experimental_distribute)
            for name in ("train_distribute", "eval_distribute")
        }
        strategy = self.train_distribute
        self._cluster = cluster_config() if strategy is None else cluster_of(strategy)

    def __getattr__(self, name: str) -> Any:
        """Return an argument, or a fact of the cluster."""
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._arguments:
            return self._arguments[name]
        return getattr(self._cluster, name)

    @property
    def train_distribute(self) -> Any:
        """The strategy that trains."""
        return self._strategies["train_distribute"]

    @property
    def eval_distribute(self) -> Any:
        """The strategy that evaluates."""
        return self._strategies["eval_distribute"]

    @property
    def evaluation_master(self) -> str:
        """No address: evaluation is this process's own."""
        return ""

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
        """Return another configuration in which these arguments are others.

        Raises:
            ProgramError: for what is no argument, and as the constructor does.
        """
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


def _strategy(name: str, value: Any, both: Any) -> Any:
    """Return a strategy; raises ProgramError in TensorFlow's words where a configuration says it too."""
    if both is not None and not hasattr(both, name):
        checks.wrong_type("experimental_distribute", "a DistributeConfig, or None", both)
    inside = getattr(both, name, None)
    if value is not None and inside is not None:
        raise ProgramError(f"Either `{name}` or `experimental_distribute.{name}` can be set.")
    strategy = inside if value is None else value
    if strategy is not None and not hasattr(strategy, "scope"):
        checks.wrong_type(name, "a strategy of several hosts, such as IPUMultiWorkerStrategy, or None", strategy)
    return strategy


def _path(model_dir: Any) -> str:
    result = checks.path("model_dir", model_dir)
    if not result:
        raise ProgramError("model_dir should be non-empty")
    return result
