"""Define the run options of an estimator: TensorFlow 1's ``RunConfig``."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any, ClassVar, Final, Self

from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime.call_checks import arguments_in
from ipusim.ipu.runtime.distribute import cluster_config, cluster_of


class _Default:
    """Marker of an omitted argument."""

    def __repr__(self) -> str:
        return "USE_DEFAULT"


_DEFAULT: Final = _Default()
#: Default seconds between checkpoints.
_SECONDS: Final = 600


class RunConfig:
    """Options of checkpoints, summaries and logs, with the cluster.

    All arguments of the constructor are attributes; ``cluster_spec``, ``task_type``, ``task_id``, ``is_chief``,
    ``num_ps_replicas``, ``num_worker_replicas`` and ``master`` describe the cluster of ``TF_CONFIG``.

    Attributes:
        evaluation_master: empty address, because this process evaluates.
    """

    evaluation_master: ClassVar[str] = ""

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
            save_checkpoints_steps, save_checkpoints_secs: interval between checkpoints in steps or in seconds of this
                computer's clock, at most one of the two; None disables checkpoints. By default 600 seconds.
            session_config: configuration of sessions.
            keep_checkpoint_max: number of checkpoints to keep; None or 0 for all.
            keep_checkpoint_every_n_hours: interval of checkpoints to keep permanently.
            log_step_count_steps: steps between logs of loss and steps a second.
            train_distribute, eval_distribute: strategies for several hosts.
            experimental_distribute: object with train_distribute, eval_distribute or both as attributes, for
                arguments not given.
            device_fn, protocol, experimental_max_worker_delay_secs, session_creation_timeout_secs: without effect.

        Raises:
            ProgramError: if checkpoint intervals are given both in steps and in seconds (TensorFlow's message).
        """
        options = arguments_in(locals())
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
        self._arguments["model_dir"] = None if model_dir is None else fspath(model_dir)
        self._strategies = {
            name: options[name] or getattr(experimental_distribute, name, None)
            for name in ("train_distribute", "eval_distribute")
        }
        strategy = self._strategies["train_distribute"]
        self._cluster = cluster_config() if strategy is None else cluster_of(strategy)

    def __getattr__(self, name: str) -> Any:
        """Return an argument or an attribute of the cluster."""
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._strategies:
            return self._strategies[name]
        if name in self._arguments:
            return self._arguments[name]
        return getattr(self._cluster, name)

    def replace(self, **kwargs: Any) -> Self:
        """Return a copy with replaced arguments.

        Raises:
            ProgramError: if an argument cannot be replaced, or for the reasons given at the constructor.
        """
        for name in kwargs:
            if name not in self._arguments:
                raise ProgramError(f"Replacing {name} is not supported. Allowed properties: {sorted(self._arguments)}")
        values = self._arguments | kwargs
        if "save_checkpoints_steps" in kwargs and "save_checkpoints_secs" not in kwargs:
            values["save_checkpoints_secs"] = None
        if "save_checkpoints_secs" in kwargs and "save_checkpoints_steps" not in kwargs:
            values["save_checkpoints_steps"] = None
        return self._with_arguments(values)

    def _with_arguments(self, options: Mapping[str, Any]) -> Self:
        return type(self)(**options)
