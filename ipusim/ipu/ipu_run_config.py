"""Configure an estimator's IPUs and its mini-batches per run: Graphcore's RunConfig."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from ipusim.api import rules
from ipusim.base.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.estimators import run_config
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.devices import device_count

__all__ = ["IPURunConfig", "RunConfig"]


class _Fields(NamedTuple):
    """Fields of an IPURunConfig, which adds checks."""

    iterations_per_loop: int
    ipu_options: IPUConfig | None
    compile_summary: bool
    num_replicas: int
    num_shards: int
    ordinal: int
    prefetch_depth: int | None


class IPURunConfig(_Fields):
    """Device, replicas and shards of an estimator.

    Args:
        iterations_per_loop: mini-batches per run, added to the global step after the run.
        ipu_options: configuration of the device.
        compile_summary: False; True is refused, as by Graphcore.
        num_replicas, num_shards: number of replicas, and IPUs per replica.
        ordinal: number of the device among the devices of ipu_options.
        prefetch_depth: prefetch depth of the infeed queue.

    Raises ProgramError, ProgramTypeError and UnsupportedProgramError with Graphcore's message.
    """

    __slots__ = ()

    def __new__(
        cls,
        iterations_per_loop: int = 1,
        ipu_options: IPUConfig | None = None,
        compile_summary: bool = False,
        num_replicas: int = 1,
        num_shards: int = 1,
        ordinal: int = 0,
        prefetch_depth: int | None = None,
    ) -> IPURunConfig:
        """Check the arguments."""
        checks.whole("iterations_per_loop", iterations_per_loop, 1)
        replicas, shards = checks.whole("num_replicas", num_replicas, 1), checks.whole("num_shards", num_shards, 1)
        checks.whole("ordinal", ordinal)
        if prefetch_depth is not None:
            rules.check_prefetch_depth(checks.integer("prefetch_depth", prefetch_depth))
        if checks.truth("compile_summary", compile_summary):
            raise UnsupportedProgramError(
                "Generating compilation summaries for the IPUEstimator through IPURunConfig.compile_summary is "
                "deprecated, is non-functional and will be removed in a future release. Use the PopVision suite of "
                "analysis tools to profile IPU programs."
            )
        if replicas * shards > 1 and ipu_options is None:
            raise ProgramError("IPU configuration requires more than one device, but `ipu_options` is None")
        available = 1 if ipu_options is None else _device_count(ipu_options)
        if ordinal >= available:
            raise ProgramError(
                f"Only {available} device(s) available to choose from. You tried to pick a device at ordinal {ordinal}"
            )
        configured = _ipu_count(ipu_options, ordinal) or replicas * shards
        if replicas * shards != configured:
            raise ProgramError(
                f"`IPURunConfig` configured with {replicas * shards} devices ({replicas} replicas times {shards} "
                f"shards), but `ipu_options` configured with {configured} devices"
            )
        return super().__new__(
            cls, iterations_per_loop, ipu_options, compile_summary, replicas, shards, ordinal, prefetch_depth
        )


def _device_count(ipu_options: object) -> int:
    """Return a configuration's number of devices; raises ProgramTypeError for another object."""
    if not isinstance(ipu_options, IPUConfig):
        raise ProgramTypeError("ipu_options must be an IPUConfig instance.")
    return max(1, device_count(ipu_options))


def _ipu_count(ipu_options: IPUConfig | None, ordinal: int) -> int:
    """Return a device's number of IPUs; 0 if the configuration leaves it open."""
    count = () if ipu_options is None else ipu_options.auto_select_ipus
    return count if isinstance(count, int) else count[ordinal] if count else 0


class RunConfig(run_config.RunConfig):
    """Run configuration of an estimator on IPUs."""

    def __init__(self, ipu_run_config: IPURunConfig | None = None, master: str | None = None, **kwargs: Any) -> None:
        """Check the arguments.

        Args:
            ipu_run_config: an IPURunConfig; by default one IPU.
            master: address of a master, without effect.
            kwargs: arguments of ``tf.estimator.RunConfig``.

        Raises:
            ProgramTypeError: unless ipu_run_config is an IPURunConfig.
            ProgramError: for the reasons given at ``tf.estimator.RunConfig``.
        """
        checks.instance("ipu_run_config", ipu_run_config, IPURunConfig | None, "an IPURunConfig")
        super().__init__(**kwargs)
        self._ipu_run_config = ipu_run_config or IPURunConfig()
        self._own_master = None if master is None else checks.text("master", master)

    @property
    def ipu_run_config(self) -> IPURunConfig:
        """Configuration of the IPUs."""
        return self._ipu_run_config

    @property
    def master(self) -> str:
        """Address passed to the constructor, or the address in TF_CONFIG."""
        return self._cluster.master if self._own_master is None else self._own_master

    def _with_arguments(self, options: Mapping[str, Any]) -> Self:
        return type(self)(self._ipu_run_config, self._own_master, **options)
