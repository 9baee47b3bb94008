"""Threads beside a run: what arrives while it goes on, once and in order, and what a thread of its own needs."""

import contextvars
import threading

import numpy as np
import pytest

from ipusim.base.errors import ProgramStateError
from ipusim.ipu.config import get_ipu_config, reset_ipu_configuration
from ipusim.ipu.runtime.program_state import ContextValue
from tests.programs import configure, configured, hosted_names

#: Longest that anything here is waited for; a test that waits so long has failed.
PATIENCE = 20.0


class Beside:
    """A function in a thread of its own, whose result or exception is there when it has ended."""

    def __init__(self, function, *args):
        self.found = self.error = None
        self._thread = threading.Thread(target=self._run, args=(function, *args), daemon=True)
        self._thread.start()

    def _run(self, function, *args):
        try:
            self.found = function(*args)
        except Exception as error:
            self.error = error

    def join(self, seconds):
        self._thread.join(seconds)

    def end(self):
        self.join(PATIENCE)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.found


def numbers(names, count, pause_at=None, pause=None):
    """Return a data set of 0, 1, ...; before one of them it calls ``pause``."""

    def given():
        for number in range(count):
            if number == pause_at:
                pause()
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

    def pause():  # long enough for a reader that does not wait to end with what has come
        begun.set()
        reader.join(0.5)

    def read():
        assert begun.wait(PATIENCE)
        return len(outfeed.dequeue(wait_for_completion=completed))

    reader = Beside(read)
    sent(names, numbers(names, 40, 20, pause), 40, outfeed)
    assert (reader.end() == 40) == completed


def test_two_readers_share_what_comes(names):
    outfeed, done = names.ipu.ipu_outfeed_queue.IPUOutfeedQueue(), threading.Event()

    def share():
        own = []
        while not done.is_set() or len(outfeed):
            own.extend(float(element) for element in outfeed)
        return own

    readers = [Beside(share), Beside(share)]
    sent(names, numbers(names, 200), 200, outfeed)
    done.set()
    parts = [reader.end() for reader in readers]
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

    Beside(ipu.ipu_strategy.IPUStrategy().run, step).end()
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

        def pause():
            assert seen.wait(PATIENCE)

        program, dequeue, initializer = compiled(names, numbers(names, 60, 30, pause), 60)
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), initializer])
            training = Beside(session.run, program)
            while len(found) < 60:
                found.extend(session.run(dequeue)[0].tolist())
                if len(found) >= 20:
                    seen.set()
            training.end()
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
        alone = [Beside(learned, *each).end() for each in asked]
        together = [each.end() for each in [Beside(learned, *each) for each in asked]]
    assert together == alone
    assert len({losses[0] for losses in alone}) == 2  # by two seeds
    assert all(losses[-1] < losses[0] / 10 for losses in alone)


def test_a_thread_has_the_configuration_and_seed_of_the_program_that_starts_it():
    configured(auto_select_ipus=2).configure_ipu_system()
    try:
        (found,) = Beside(get_ipu_config).end()
        assert found.auto_select_ipus == 2
    finally:
        reset_ipu_configuration()
    with pytest.raises(ProgramStateError, match="No IPU devices configured"):
        Beside(get_ipu_config).end()


def test_what_is_remembered_belongs_to_a_context_and_to_threads_that_begin():
    value = ContextValue("value", 0)
    contextvars.copy_context().run(value.set, 1)
    assert value() == 0
    assert Beside(value).end() == 1
    value.set(2)
    assert contextvars.copy_context().run(value) == 2

    def own():
        value.set(3)
        return value()

    assert Beside(own).end() == 3
    assert value() == 2
