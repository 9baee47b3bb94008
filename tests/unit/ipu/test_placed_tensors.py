"""Tensors computed in a scope for an IPU, which a session computes on the device without ipu_compiler.compile."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.base.errors import ProgramStateError
from ipusim.ipu import profile, scopes
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig


def without_files(*_):
    """Return the files of a run, which no test here looks at."""
    return {}


def configured(count):
    config = IPUConfig()
    config.auto_select_ipus = count
    config.configure_ipu_system()


def computed(scope, shards=(None, None)):
    """Return placeholders, and a tensor of them whose two parts are on these shards."""
    a, b = (tf.placeholder(np.float32, [None, 2], name=name) for name in "ab")
    with scope:
        parts = []
        for factor, shard in zip((2.0, 3.0), shards, strict=True):
            with scopes.ipu_shard(shard) if shard is not None else scopes.ipu_jit_scope(None):
                parts.append((a + b) * factor)
        return a, b, tf.reduce_sum(parts[0] - parts[1] * parts[1], axis=1)


@pytest.mark.parametrize("scope", [scopes.ipu_scope, tf.device])
def test_a_session_computes_on_the_device_once_for_each_form_of_what_is_fed(scope, tmp_path):
    configured(1)
    with profile(tmp_path / "found", files=without_files) as found:
        a, b, total = computed(scope("/device:IPU:0"))
        with tf.Session() as session:
            for rows in (1, 1, 3):
                fed = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
                expected = (2 * (fed + 1) - 9 * (fed + 1) ** 2).sum(axis=1)
                np.testing.assert_array_equal(session.run(total, {a: fed, b: np.ones_like(fed)}), expected)
    assert [run.job.program.shape.training for run in found.runs] == [False, False]


def test_shards_of_the_scope_are_shards_of_the_program(tmp_path):
    configured(2)
    with profile(tmp_path / "found", files=without_files) as found:
        a, b, total = computed(scopes.ipu_scope("/device:IPU:0"), (0, 1))
        with tf.Session() as session:
            assert session.run(total, {a: [[1, 2]], b: [[3, 4]]}) == pytest.approx([2 * 10 - 9 * (16 + 36)])
    (run,) = found.runs
    assert run.job.system.count == 2
    assert (run.timeline.info.shards, len(run.timeline.info.stages_of_ipu)) == (2, 2)


@pytest.mark.parametrize("name", ["cpu", None])
def test_the_host_computes_what_no_scope_places(name, tmp_path):
    def run():
        with profile(tmp_path / "found"):
            a, b, total = computed(tf.device("cpu") if name else scopes.ipu_jit_scope(None))
            with tf.Session() as session:
                assert session.run(total, {a: [[1, 2]], b: [[3, 4]]}) == pytest.approx([2 * 10 - 9 * (16 + 36)])

    with pytest.raises(ProgramStateError, match="expected a pipeline or a loop that runs on IPUs, got none"):
        run()
