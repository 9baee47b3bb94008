"""Threads beside a run: what arrives while it goes on, once and in order, and what a thread of its own needs."""

import contextvars
import threading
from concurrent.futures import Future, wait

import numpy as np
import pytest

from ipusim.base.errors import ProgramStateError
from ipusim.ipu.config import get_ipu_config, reset_ipu_configuration
from tests.programs import configure, configured, hosted_names

#: Longest that anything here is waited for; a test that waits so long has failed.
PATIENCE = 20.0


def beside(function, *args):
    """Call a function in a thread of its own, which ends with the process; return the Future of its result."""
    future = Future()

    def run():
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def numbers(names, count, pause_at=None, seen=None):
    """Return a data set of 0, 1, ...; before one of them it waits until a reader has seen what came before."""

    def given():
        for number in range(count):
            if number == pause_at:
                assert seen.wait(PATIENCE)
            yield np.float32(number)

    signature = names.tf.TensorSpec([], names.tf.float32)
    return names.tf.data.Dataset.from_generator(given, output_signature=signature)


def sent(names, dataset, count, outfeed):
    """Run a loop of TensorFlow 2 that sends each element."""

    @names.tf.function(jit_compile=True)
    def step(iterator):
        for _ in names.tf.range(count):
            outfeed.enqueue(next(iterator))

    names.ipu.ipu_strategy.IPUStrategy().run(step, args=[iter(dataset)])


@pytest.fixture
def names():
    with hosted_names(2) as found:
        configure(found, 1)
        yield found


@pytest.mark.parametrize("completed", [False, True])
def test_a_thread_waits_for_the_end_of_a_run_where_it_is_asked_to(names, completed):
    outfeed, begun = names.ipu.ipu_outfeed_queue.IPUOutfeedQueue(), threading.Event()

    def stream():
        for number in range(40):
            if number == 20:  # long enough for a reader that does not wait to end with what has come
                begun.set()
                wait([reader], 0.5)
            yield np.float32(number)

    def read():
        assert begun.wait(PATIENCE)
        return len(outfeed.dequeue(wait_for_completion=completed))

    reader = beside(read)
    signature = names.tf.TensorSpec([], names.tf.float32)
    sent(names, names.tf.data.Dataset.from_generator(stream, output_signature=signature), 40, outfeed)
    assert (reader.result(PATIENCE) == 40) == completed


def test_two_readers_share_what_comes(names):
    outfeed, done = names.ipu.ipu_outfeed_queue.IPUOutfeedQueue(), threading.Event()

    def share():
        own = []
        while not done.is_set() or len(outfeed):
            own.extend(float(element) for element in outfeed)
        return own

    readers = [beside(share), beside(share)]
    sent(names, numbers(names, 200), 200, outfeed)
    done.set()
    parts = [reader.result(PATIENCE) for reader in readers]
    assert all(part == sorted(part) for part in parts)
    assert sorted(parts[0] + parts[1]) == list(range(200))


def test_a_program_in_a_thread_has_the_variables_of_the_one_that_starts_it(names):
    tf, ipu = names.tf, names.ipu
    weight, outfeed = tf.Variable(np.float32(1)), ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @tf.function(jit_compile=True)
    def step():
        for _ in tf.range(3):
            loss = (weight - 3) ** 2
            weight.assign_sub(0.5 * (weight - 3))
            outfeed.enqueue(loss)

    beside(ipu.ipu_strategy.IPUStrategy().run, step).result(PATIENCE)
    assert (outfeed.dequeue().numpy().tolist(), float(weight)) == ([4, 1, 0.25], 2.75)


def compiled(names, dataset, count, rate=0.0):
    """Write a loop of TensorFlow 1 that sends each element, and trains a weight on it; return what a session needs."""
    tf, ipu = names.tf, names.ipu
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(x):
        loss = tf.square(tf.get_variable("w", [4]) - 1)
        with tf.control_dependencies([tf.train.GradientDescentOptimizer(rate).minimize(tf.reduce_sum(loss))]):
            return outfeed.enqueue([x, loss])

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        program = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(count, body, [], infeed))
    return program, outfeed.dequeue(), infeed.initializer


def test_sessions_in_two_threads():
    """One trains, one dequeues, as programs of TensorFlow 1 have it."""
    with hosted_names() as names:
        configure(names, 1)
        seen, found, tf = threading.Event(), [], names.tf
        program, dequeue, initializer = compiled(names, numbers(names, 60, 30, seen), 60)
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), initializer])
            training = beside(session.run, program)
            while len(found) < 60:
                found.extend(session.run(dequeue)[0].tolist())
                if len(found) >= 20:
                    seen.set()
            training.result(PATIENCE)
        assert found == list(range(60))


def test_programs_in_threads_of_their_own_compute_what_they_compute_alone():
    with hosted_names() as names:
        configure(names, 1)
        tf = names.tf

        def learned(rate, seed):
            with tf.Graph().as_default(), tf.Session() as session:
                tf.set_random_seed(seed)
                program, dequeue, initializer = compiled(names, tf.data.Dataset.range(150), 150, rate)
                session.run([tf.global_variables_initializer(), initializer])
                session.run(program)
                return session.run(dequeue)[1].sum(axis=1).tolist()

        asked = [(0.1, 1), (0.2, 2), (0.3, 1)]
        alone = [beside(learned, *each).result(PATIENCE) for each in asked]
        together = [each.result(PATIENCE) for each in [beside(learned, *each) for each in asked]]
    assert together == alone
    assert len({losses[0] for losses in alone}) == 2  # by two seeds
    assert all(losses[-1] < losses[0] / 10 for losses in alone)


def test_a_thread_has_the_configuration_and_seed_of_the_program_that_starts_it():
    configured(auto_select_ipus=2).configure_ipu_system()
    try:
        (found,) = beside(get_ipu_config).result(PATIENCE)
        assert found.auto_select_ipus == 2
        contextvars.copy_context().run(configured(auto_select_ipus=4).configure_ipu_system)
        (found,) = get_ipu_config()
        assert found.auto_select_ipus == 2  # as another context's is its own
    finally:
        reset_ipu_configuration()
    with pytest.raises(ProgramStateError, match="No IPU devices configured"):
        beside(get_ipu_config).result(PATIENCE)
