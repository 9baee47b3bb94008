"""Every program and fragment of the seeds runs, and has the effect that its text states."""

from __future__ import annotations

import contextvars
import os

import pytest

from ipusim.ipu.program_file import ProgramFile
from tests.seed_programs import names, seed_program, seeds_folder

#: What programs need that is not there yet, each with the programs.
MISSING: dict[str, str] = {
    "tf.compat.v1.data.make_one_shot_iterator": "000_dataset_beside_stages",
    "the datasets of Keras, mnist.load_data()": """
        000_inference 000_training 001_estimator 001_step1 001_step2 001_step3 001_step3_arguments 001_step4
        001_step4_dense128 001_step4_four_stages 002_inference 002_training 003_outfeed_while_it_runs
    """,
    "ipu_compiler.compile of a plain function": """
        002_augru 002_codelet 002_ctc 002_dynamic_gru 002_gru 002_lstm 002_nce_loss 002_outside_compilation
        002_print_returned 002_sampled_softmax 002_sharded_graph
    """,
    "several TensorFlow devices in one configuration": """
        002_config_of_indices 002_config_of_ipus 002_indices_0_1 002_indices_24_25 002_indices_of_four
        002_select_one_and_two 002_select_two_and_two
    """,
    "a tuple that is dequeued as the tuple that was enqueued": "002_dequeue_tuple",
    "compute_gradients of a MapGradientOptimizer outside of a program": "002_map_gradients",
    "DepthwiseConv2D": "002_multi_conv 002_multi_conv_options",
    "lists of whole numbers as the source of sequence_slice": "002_sequence_slice 002_sequence_slice_pack",
    "control dependencies of what the host computes": "002_print_before",
    "apply_gradients with Keras' positional arguments": "003_cast_gradients",
}
_REASONS = {name: reason for reason, programs in MISSING.items() for name in programs.split()}


def _case(name: str):
    return pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=_REASONS[name])) if name in _REASONS else name


@pytest.mark.skipif(seeds_folder() is None, reason="the seeds are not beside the checkout: see tests/seed_programs.py")
@pytest.mark.parametrize("name", [_case(name) for name in names()])
def test_a_program_of_the_seeds_has_the_effect_that_its_text_states(name, tmp_path, monkeypatch):
    folder = seeds_folder()
    assert folder is not None
    program = seed_program(name, folder)
    file = tmp_path / f"{name}.py"
    file.write_text(program.text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    contextvars.Context().run(ProgramFile(file).run, program.arguments, program.hosts)


def test_what_is_missing_is_a_program():
    assert set(_REASONS) <= set(names())
