"""Calls in a wrong order, of what has been used already, and in threads: an error of ours, or none."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest

from ipusim.base.errors import IpusimError
from ipusim.ipu import ipu_compiler, loops
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipusim.ipu.runtime.host import Running
from tests.unit.ipu.test_wrong_calls import X, body, feed, fetched, sgd


def learn(loss):
    return OptimizerFunctionOutput(sgd(), loss)


def compiled(infeed=None, outfeed=None):
    given = {"infeed_queue": infeed or feed(), "outfeed_queue": outfeed or IPUOutfeedQueue()}
    return ipu_compiler.compile(lambda: pipeline([body, body], 4, **given))


def closed():
    with tf.Session() as session:
        pass
    session.run(tf.no_op())


def run_without_feeding():
    rate = tf.placeholder(tf.float32, [])
    program = ipu_compiler.compile(lambda lr: loops.repeat(1, lambda lr: lr, [lr]), [rate])
    fetched(program)


def infeed_in_both():
    queue = feed()
    compiled(queue)
    compiled(queue, IPUOutfeedQueue(IPUOutfeedMode.LAST))


def outfeed_twice():
    queue = IPUOutfeedQueue()
    compiled(outfeed=queue)
    compiled(outfeed=queue)


def dequeued_first():
    queue = IPUOutfeedQueue()
    program = compiled(outfeed=queue)
    fetched(queue.dequeue())
    fetched(program)


def last_before_it_ran():
    queue = IPUOutfeedQueue(IPUOutfeedMode.LAST)
    compiled(outfeed=queue)
    fetched(queue.dequeue())


def ended_dataset():
    pipeline([body, body], 4, infeed_queue=IPUInfeedQueue([X, X]), outfeed_queue=IPUOutfeedQueue())


def ended_while_running():
    pipeline([body, body], 4, infeed_queue=IPUInfeedQueue([X] * 4), outfeed_queue=IPUOutfeedQueue()).run()


def other_inputs(inputs):
    stages = [lambda c, x: x * c, body]
    pipeline(stages, 4, inputs=[2.0], infeed_queue=feed(), outfeed_queue=IPUOutfeedQueue()).run(inputs)


def trained(optimizer_function, stages=None):
    return pipeline(
        stages or [lambda x: x * tf.get_variable("w", [3]), tf.reduce_sum],
        4,
        infeed_queue=feed(),
        outfeed_queue=IPUOutfeedQueue(),
        optimizer_function=optimizer_function,
    )


class ForgetsPairs(tf.train.GradientDescentOptimizer):
    def compute_gradients(self, *args, **kwargs):
        return None


class AppliesTexts(tf.train.GradientDescentOptimizer):
    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        return super().apply_gradients([("gradient", variable) for _, variable in grads_and_vars])


def changes_its_variables():
    calls = []

    def stage(x):
        calls.append(1)
        return x * tf.get_variable(f"w{len(calls)}", [3])

    trained(learn, [stage, tf.reduce_sum])


def changes_its_outputs():
    calls = []

    def stage(x):
        calls.append(1)
        return {"a": x} if len(calls) % 2 else {"b": x}

    trained(learn, [stage, lambda each: tf.reduce_sum(*each.values())])


def read_in_another_stage():
    kept = []

    def stage(x):
        kept.append(x * tf.get_variable("w", [3]))
        return kept[-1]

    trained(learn, [stage, lambda x: tf.reduce_sum(kept[0] * x)])


def all_variables_left_out():
    trained(lambda loss: OptimizerFunctionOutput(sgd(), loss, compute_gradients_kwargs={"var_list": []}))


def variables_of_another_program():
    one = tf.Variable(1.0, name="one")
    trained(lambda loss: OptimizerFunctionOutput(sgd(), loss, compute_gradients_kwargs={"var_list": [one]}))


def nested():
    loops.repeat(1, lambda x: loops.repeat(1, body, [x]), [X])


def a_pipeline_in_a_stage():
    pipeline([lambda x: ended_dataset() or x, body], 4, infeed_queue=feed(), outfeed_queue=IPUOutfeedQueue())


def a_variable_in_two_loops_of_other_shapes():
    for size in (2, 3):
        with tf.variable_scope("", reuse=tf.AUTO_REUSE):
            ipu_compiler.compile(
                lambda size=size: loops.repeat(1, lambda x: x + tf.get_variable("w", [size]), [np.ones(size)])
            )


def another_reset():
    program = compiled()
    tf.reset_default_graph()
    fetched(program)


#: Orders of calls and things that are used twice, each with the text that it is refused by; empty where it is fine.
ORDERS = [
    (closed, "Attempted to use a closed Session."),
    (run_without_feeding, "You must feed a value for placeholder tensor 'Placeholder'"),
    (infeed_in_both, ""),
    (outfeed_twice, "An outfeed can only be enqueued once."),
    (dequeued_first, "Did you initialize the infeed_queue 'infeed'"),
    (last_before_it_ran, "Trying to get the last value from an outfeed queue before it was executed."),
    (ended_dataset, "the infeed's dataset ended after 2 elements"),
    (ended_while_running, "the infeed's dataset ended after 4 elements"),
    (partial(other_inputs, []), "inputs: expected 1 values as in the pipeline's own, got 0"),
    (partial(other_inputs, [np.ones(2)]), r"inputs\[0\]: expected shape \(\) as in the pipeline's own, got \(2,\)"),
    (partial(other_inputs, ["fast"]), r"inputs\[0\]: expected an array or a number, got 'fast'"),
    (partial(other_inputs, [1j]), r"inputs\[0\]: expected an array or a number, got 1j"),
    (partial(trained, lambda loss: None), "optimizer_function: expected an OptimizerFunctionOutput from it, got None"),
    (partial(trained, lambda: None), "failed on .*takes 0 positional arguments but 1 was given"),
    (
        partial(trained, lambda loss: OptimizerFunctionOutput(ForgetsPairs(0.1), loss)),
        "compute_gradients: expected pairs",
    ),
    (
        partial(trained, lambda loss: OptimizerFunctionOutput(AppliesTexts(0.1), loss)),
        "Gradient must be a Tensor, IndexedSlices, or None: gradient",
    ),
    (
        partial(trained, lambda loss: OptimizerFunctionOutput(sgd(), loss, apply_gradients_kwargs={"bogus": 1})),
        "got an unexpected keyword argument 'bogus'",
    ),
    (
        partial(trained, lambda loss: OptimizerFunctionOutput(sgd(), loss, compute_gradients_kwargs={"bogus": 1})),
        "got an unexpected keyword argument 'bogus'",
    ),
    (changes_its_variables, "asked for variable 'w2', but not when it was tried"),
    (changes_its_outputs, "expected outputs of one structure in all micro-batches"),
    (read_in_another_stage, ""),
    (all_variables_left_out, "No variables to optimize"),
    (variables_of_another_program, "No gradients provided for any variable"),
    (nested, r"inputs\[0\]: expected an array or a number, got <"),
    (a_pipeline_in_a_stage, "the infeed's dataset ended after 2 elements"),
    (a_variable_in_two_loops_of_other_shapes, "Trying to share variable w"),
    (another_reset, "Did you initialize the infeed_queue 'infeed'"),
]


@pytest.mark.parametrize(("action", "text"), ORDERS, ids=lambda value: getattr(value, "__name__", ""))
def test_orders_and_what_is_used_twice(action, text):
    if text:
        with pytest.raises(IpusimError, match=text):
            action()
    else:
        action()


def in_threads(*actions):
    """Run actions at the same time, each in a thread; return what they raise."""
    raised, together = [], threading.Barrier(len(actions))

    def run(action):
        together.wait()
        try:
            action()
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_programs_in_threads_do_not_know_of_each_other():
    found = {}

    def train(number):
        def action():
            w = tf.Variable(np.float32(number), name="w")
            trained(
                learn,
                [lambda x: x * w, lambda x: tf.reduce_sum(x) * tf.train.get_or_create_global_step().assign_add(1) ** 0],
            )
            found[number] = w.numpy(), [each.name for each in tf.global_variables()], tf.train.get_global_step().numpy()

        return action

    assert in_threads(*(train(number) for number in range(4))) == []
    # 12 elements of 1 in each of 4 micro-batches, whatever the value is
    assert found == {number: (pytest.approx(number - 4.8, abs=1e-5), ["w", "global_step"], 4) for number in range(4)}


def test_one_session_queue_and_variable_in_several_threads():
    queue, v = IPUOutfeedQueue(), tf.Variable(0.0, trainable=False)
    infeed = feed()
    infeed.initializer.evaluate(Running())
    program = compiled(infeed, queue)
    raised = in_threads(*[lambda: fetched([program, queue.dequeue()]), lambda: v.assign_add(1.0), closed] * 2)
    assert [str(error) for error in raised if not isinstance(error, IpusimError)] == []
    assert sum("closed Session" in str(error) for error in raised) == 2


@pytest.mark.parametrize("action", [lambda: tf.get_variable("w", [2]), lambda: tf.get_variable("w", [3]), compiled])
def test_what_is_of_one_thread_is_not_of_another(action):
    action()
    raised = in_threads(action)
    assert raised == []
