"""With which variables of a checkpoint a first training begins: ``tf.estimator.WarmStartSettings``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

from ipusim.api import checkpoint
from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.checkpoint_files import of_checkpoint, read_checkpoint
from ipusim.ipu.tensorflow.saver import go_on_from, latest_checkpoint, state_now


class WarmStartSettings(NamedTuple):
    """Which variables to take.

    Attributes:
        ckpt_to_initialize_from: a checkpoint, or the folder of some.
        vars_to_warm_start: a regular expression of their names, or a list of names or expressions; None for none.
        var_name_to_vocab_info: must be empty.
        var_name_to_prev_var_name: from a name here to that in the checkpoint.
    """

    ckpt_to_initialize_from: str
    vars_to_warm_start: Any = ".*"
    var_name_to_vocab_info: Mapping[str, Any] | None = None
    var_name_to_prev_var_name: Mapping[str, str] | None = None


def settings_of(given: Any) -> WarmStartSettings | None:
    """Return what to begin with.

    Raises ProgramTypeError for what is no path or settings, ProgramError for vocabularies.
    """
    if given is None:
        return None
    if isinstance(given, str | PathLike):
        return WarmStartSettings(fspath(given))
    if not isinstance(given, WarmStartSettings):
        checks.wrong_type("warm_start_from", "a path, or WarmStartSettings", given)
    if given.var_name_to_vocab_info:
        checks.wrong_value("var_name_to_vocab_info", "none, as vocabularies are not simulated", given[2])
    return given


def warm_start(settings: WarmStartSettings) -> None:
    """Set the variables of the compiled programs; raises ProgramError for those that the checkpoint has not."""
    place = settings.ckpt_to_initialize_from
    prefix = latest_checkpoint(place) if Path(place).is_dir() else place
    if prefix is None:
        raise ProgramError(f"warm_start_from: expected a checkpoint, or a folder with one, got {place!r}")
    arrays, before = read_checkpoint(prefix), settings.var_name_to_prev_var_name or {}
    wanted = {
        name
        for name in state_now()
        if checkpoint.is_variable(name)
        and name != "global_step"
        and (name in before or _matches(settings.vars_to_warm_start, name))
    }
    with of_checkpoint(prefix):
        known = {name: before.get(name, name) for name in wanted}
        found = {name: arrays[there] for name, there in known.items() if there in arrays}
        go_on_from(found, wanted.__contains__)


def _matches(expressions: str | Sequence[str] | None, name: str) -> bool:
    if expressions is None:
        return False
    listed = [expressions] if isinstance(expressions, str) else expressions
    return any(re.match(each, name) for each in listed)
