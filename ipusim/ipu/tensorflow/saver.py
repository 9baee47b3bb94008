"""``tf.train.Saver``: checkpoints of all that the compiled programs go on from, and what tools ask of checkpoints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np

from ipusim.api import Array, checkpoint
from ipusim.base.errors import ProgramError
from ipusim.base.near_names import did_you_mean
from ipusim.ipu.ipu_compiler import compiled
from ipusim.ipu.runtime import checkpoint_files, checks
from ipusim.ipu.runtime.host import Fetch
from ipusim.ipu.runtime.program_state import store
from ipusim.ipu.runtime.run import Pipeline
from ipusim.ipu.runtime.variable import NamedVariable
from ipusim.ipu.tensorflow.session import Session

_HOUR = 3600.0


class Saver:
    """Saves and restores what the programs compiled in a context go on from.

    That is more than variables: training goes on to the same bits, in another process too.

    Args:
        var_list: variables, as such or by name; by default all, with the optimizer's arrays, the place in the infeed,
            and that of random draws.
        max_to_keep: checkpoints that stay, None or 0 for all.
        keep_checkpoint_every_n_hours: how often one stays for good.
        filename: without effect, as the others that are not named here.

    Raises ProgramError without a compiled program.
    """

    def __init__(
        self,
        var_list: Any = None,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None,
        restore_sequentially: bool = False,
        saver_def: object = None,
        builder: object = None,
        defer_build: bool = False,
        allow_empty: bool = False,
        write_version: object = None,
        pad_step_number: bool = False,
        save_relative_paths: bool = False,
        filename: str | None = None,
    ) -> None:
        """Check the arguments; the variables to save are looked up on saving."""
        if checks.truth("reshape", reshape):
            checks.wrong_value("reshape", "False, as arrays are restored in their shapes", reshape)
        self._chosen, self._names = _filter_of(var_list), _names_of(var_list)
        if not allow_empty and not defer_build and not (_programs() or store().variables):
            raise ProgramError("No variables to save")
        self._keep = 0 if max_to_keep is None else checks.whole("max_to_keep", max_to_keep)
        self._pad = checks.truth("pad_step_number", pad_step_number)
        self._hours = checks.not_negative("keep_checkpoint_every_n_hours", keep_checkpoint_every_n_hours)
        self._next_for_good = time.time() + self._hours * _HOUR
        self._last: list[tuple[str, float]] = []
        self._saved: set[str] = set()

    @property
    def last_checkpoints(self) -> list[str]:
        """The checkpoints that have been saved and are there, the latest last."""
        return [path for path, _ in self._last]

    def recover_last_checkpoints(self, checkpoint_paths: Sequence[str]) -> None:
        """Take over the checkpoints of an earlier process.

        When there are too many, those of them are deleted that lie below the folder of what is saved then; others,
        which a list of checkpoints may name as well, are forgotten.
        """
        self._last = [
            (path, Path(f"{path}.npz").stat().st_mtime) for path in checkpoint_paths if checkpoint_files.there(path)
        ]

    def save(
        self,
        sess: Any,
        save_path: str | PathLike[str],
        global_step: Any = None,
        latest_filename: str | None = None,
        meta_graph_suffix: str = "meta",
        write_meta_graph: bool = True,
        write_state: bool = True,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
    ) -> str:
        """Save a checkpoint whole, list it, delete the oldest of too many, and return its prefix.

        Deleted is only what this saver has saved itself, or what lies below the folder of ``save_path``.

        ``global_step`` is put behind ``save_path``; ``latest_filename`` is the list's name. The arguments behind it,
        but for write_state, are without effect. Raises ProgramError for a folder that is not there, OutputError
        naming what cannot be written.
        """
        _check_session(sess)
        prefix = checks.path("save_path", save_path)
        if global_step is not None:
            value = sess.run(global_step) if isinstance(global_step, Fetch) else global_step
            step = checks.whole("global_step", np.asarray(value)[()])
            prefix = f"{prefix}-{step:08d}" if self._pad else f"{prefix}-{step}"
        folder = Path(prefix).parent
        if not folder.is_dir():
            raise ProgramError(f"Parent directory of {prefix} doesn't exist, can't save.")
        if not Path(prefix).name or (latest_filename is not None and Path(prefix).name == latest_filename):
            raise ProgramError(f"'latest_filename' collides with 'save_path': '{latest_filename}' and '{prefix}'")
        called = {own: name for name, own in self._names.items()}
        state = {called.get(own, own): array for own, array in state_now(self._chosen).items()}
        checkpoint_files.write_checkpoint(prefix, state)
        old = self._add(prefix)
        if write_state:
            checkpoint_files.write_list(
                folder, self.last_checkpoints, checkpoint_files.LIST if latest_filename is None else latest_filename
            )
        for item in old:  # when the list names them no more
            if item in self._saved or checkpoint_files.lies_below(folder, item):
                checkpoint_files.delete_checkpoint(item)
        return prefix

    def restore(self, sess: Any, save_path: str | PathLike[str] | None) -> None:
        """Go on from a checkpoint; raises ProgramError for none, one that is damaged, and one of another model."""
        _check_session(sess)
        if save_path is None:
            raise ProgramError("Can't load save_path when it is None.")
        prefix = checks.path("save_path", save_path)
        arrays = checkpoint_files.read_checkpoint(prefix)
        if self._names:
            if missing := [name for name in self._names if name not in arrays]:
                raise ProgramError(f"Key {missing[0]} not found in checkpoint{did_you_mean(missing[0], arrays)}")
            arrays = {own: arrays[name] for name, own in self._names.items()}
        with checkpoint_files.of_checkpoint(prefix):
            go_on_from(arrays, self._chosen)

    def _add(self, prefix: str) -> list[str]:
        """Note a checkpoint, and return those that are to go."""
        self._last = [(path, when) for path, when in self._last if path != prefix]
        self._last.append((prefix, time.time()))
        self._saved.add(prefix)
        old: list[str] = []
        while self._keep and len(self._last) > self._keep:
            path, when = self._last.pop(0)
            if when > self._next_for_good:
                self._next_for_good += self._hours * _HOUR
            else:
                old.append(path)
        return old


def latest_checkpoint(checkpoint_dir: str | PathLike[str], latest_filename: str | None = None) -> str | None:
    """Return the prefix of the latest checkpoint of a folder; None where there is none. Raises ProgramError."""
    state = get_checkpoint_state(checkpoint_dir, latest_filename)
    prefix = None if state is None else state.model_checkpoint_path
    return prefix if prefix is not None and checkpoint_files.there(prefix) else None


class CheckpointState:
    """The checkpoints of a folder.

    Attributes:
        model_checkpoint_path: prefix of the latest.
        all_model_checkpoint_paths: prefixes of all.
    """

    def __init__(self, listed: checkpoint_files.Listed) -> None:
        """Take what a list says."""
        self.model_checkpoint_path, self.all_model_checkpoint_paths = listed.latest, list(listed.all)


def get_checkpoint_state(
    checkpoint_dir: str | PathLike[str], latest_filename: str | None = None
) -> CheckpointState | None:
    """Return the checkpoints that a folder's list names; None without a list. Raises ProgramError for a damaged one."""
    folder = Path(checks.path("checkpoint_dir", checkpoint_dir))
    listed = checkpoint_files.read_list(folder, checkpoint_files.LIST if latest_filename is None else latest_filename)
    return None if listed is None else CheckpointState(listed)


def checkpoint_exists(checkpoint_prefix: str | PathLike[str]) -> bool:
    """Tell whether there is a checkpoint."""
    return checkpoint_files.there(checks.path("checkpoint_prefix", checkpoint_prefix))


def list_variables(ckpt_dir_or_file: str | PathLike[str]) -> list[tuple[str, list[int]]]:
    """Return names and shapes of the variables and the optimizer's arrays of a checkpoint, or of a folder's latest."""
    arrays = checkpoint_files.read_checkpoint(_prefix(ckpt_dir_or_file))
    return [(name, list(arrays[name].shape)) for name in sorted(arrays) if not checkpoint.is_own(name)]


def load_variable(ckpt_dir_or_file: str | PathLike[str], name: str) -> Array:
    """Return an array of a checkpoint, or of a folder's latest; raises ProgramError for a name that it has not."""
    prefix, key = _prefix(ckpt_dir_or_file), checks.text("name", name).removesuffix(":0")
    known = checkpoint_files.names_in_checkpoint(prefix)
    if key not in known:
        raise ProgramError(f"Key {name} not found in checkpoint{did_you_mean(key, known)}")
    return checkpoint_files.read_checkpoint(prefix, [key])[key]


def _prefix(ckpt_dir_or_file: str | PathLike[str]) -> str:
    path = checks.path("ckpt_dir_or_file", ckpt_dir_or_file)
    prefix = latest_checkpoint(path) if Path(path).is_dir() else path
    if prefix is None:
        raise ProgramError(f"Couldn't find 'checkpoint' file or checkpoints in given directory {path}")
    return prefix


def _check_session(sess: Any) -> None:
    checks.instance("sess", sess, Session, "a tf.Session")
    sess.run([])  # which a closed one refuses


def _filter_of(var_list: Any) -> checkpoint.NameFilter:
    if var_list is None:
        return checkpoint.everything
    listed = list(var_list.values()) if isinstance(var_list, dict) else var_list
    if not isinstance(listed, list | tuple) or not all(isinstance(item, str | NamedVariable) for item in listed):
        checks.wrong_type("var_list", "a list of variables, as such or by name", var_list)
    names = set(map(_own_name, listed))
    return lambda name: checkpoint.is_variable(name) and name in names


def _names_of(var_list: Any) -> dict[str, str]:
    """Return the names of variables by those that a dictionary gives them in checkpoints; none of a list."""
    if not isinstance(var_list, dict):
        return {}
    return {checks.text("var_list", name): _own_name(item) for name, item in var_list.items()}


def _own_name(item: str | NamedVariable) -> str:
    """Return the name of a variable, which is given as such or by its name."""
    return (item if isinstance(item, str) else item.name).removesuffix(":0")


#: What begins the names of what is a program's own: of the first that was compiled, and of others.
_OWN: Final = "ipusim/"
_PROGRAM: Final = "ipusim/program "


def state_now(chosen: checkpoint.NameFilter = checkpoint.everything) -> dict[str, Array]:
    """Return copies of all whose names are ``chosen``; of two programs that have a variable, the one that trains it."""
    result: dict[str, Array] = {}
    for number, program in _programs():
        arrays = {_named(number, name): array for name, array in program.arrays().items()}
        result = result | arrays if program.plan.shape.training else arrays | result
    result |= {name: item.value_now() for name, item in _of_the_host().items()}
    return {name: array for name, array in result.items() if chosen(name)}


def go_on_from(arrays: checkpoint.Arrays, chosen: checkpoint.NameFilter = checkpoint.everything) -> None:
    """Set all whose names are ``chosen``; raises as Pipeline.set_arrays does, before anything is set."""
    others = {name: item for name, item in _of_the_host().items() if chosen(name)}
    checkpoint.check_arrays({name: item.initial for name, item in others.items()}, arrays)
    values = [(program, _arrays_for(number, arrays)) for number, program in _programs()]
    for program, own in values:
        program.check_arrays(own, chosen)
    for program, own in values:
        program.set_arrays(own, chosen)
    for name, item in others.items():
        item.set(arrays[name])


def _arrays_for(number: int, arrays: checkpoint.Arrays) -> dict[str, Array]:
    """Return the arrays of a program by the names that it has for them."""
    begin = _begin(number)
    result = {name: array for name, array in arrays.items() if not checkpoint.is_own(name)}
    own = [name for name in arrays if name.startswith(begin) and (number or not name.startswith(_PROGRAM))]
    return result | {name.replace(begin, _OWN, 1): arrays[name] for name in own}


def _programs() -> list[tuple[int, Pipeline]]:
    return list(enumerate(item for item in compiled() if isinstance(item, Pipeline)))


def _of_the_host() -> dict[str, NamedVariable]:
    """Return the variables that are in no program, by name."""
    used = {name for _, program in _programs() for name in program.variables}
    return {variable.name: variable for variable in store().variables if variable.name not in used}


def _named(number: int, name: str) -> str:
    """Return a name that no other program has for what is a program's own."""
    return name.replace(_OWN, _begin(number), 1) if checkpoint.is_own(name) else name


def _begin(number: int) -> str:
    return f"{_PROGRAM}{number}/" if number else _OWN
