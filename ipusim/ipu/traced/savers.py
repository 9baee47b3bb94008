"""Save and restore with TensorFlow's Saver; refuse checkpoints written by an earlier ipusim."""

from __future__ import annotations

import re
from os import fspath
from pathlib import Path
from typing import Any

from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.tensorflow_import import load

tf = load()
_SAVER: Any = tf.compat.v1.train.Saver


class Saver(_SAVER):  # type: ignore[misc]
    """TensorFlow's Saver with a check of the checkpoint's format."""

    def restore(self, sess: Any, save_path: Any) -> None:
        """Restore a session's variables from a checkpoint.

        Args:
            sess: the session.
            save_path: prefix of the checkpoint's files.

        Raises:
            ProgramError: if the checkpoint holds NumPy arrays.
        """
        refuse_arrays(save_path)
        super().restore(sess, save_path)


def refuse_arrays(path: Any) -> None:
    """Refuse a checkpoint of NumPy arrays, the format before TensorFlow's Saver.

    Args:
        path: prefix of a checkpoint, or a folder with a list of checkpoints.

    Raises:
        ProgramError: if the checkpoint is in that format; the message names its file.
    """
    if path is None:
        return
    prefix = Path(fspath(path))
    if prefix.is_dir():
        index_file = prefix / "checkpoint"
        match = re.search(
            r'^model_checkpoint_path: "(.*)"', index_file.read_text() if index_file.is_file() else "", re.MULTILINE
        )
        if match is None:
            return
        prefix /= match[1]
    arrays = Path(f"{prefix}.npz")
    if arrays.is_file() and not Path(f"{prefix}.index").exists():
        raise ProgramError(
            f"checkpoint {prefix}: expected one of TensorFlow's Saver, got NumPy arrays of an earlier ipusim in "
            f"{arrays.name}: train anew, or assign what numpy.load reads"
        )
