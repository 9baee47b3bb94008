"""Threads beside a run: what arrives while it goes on, once and in order, and what a thread of its own needs."""

from __future__ import annotations

import contextvars
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from ipusim.base.errors import ModelError, ProgramStateError
from ipusim.ipu import ipu_compiler, loops, pipelining_ops
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig, get_ipu_config, reset_ipu_configuration
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipusim.ipu.ipu_strategy import IPUStrategy
from ipusim.ipu.runtime.program_state import Remembered

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


def numbers(count, pause_at=None, seen=None):
    """Yield 0, 1, ...; before one of them wait until a reader has seen what came before."""
    for number in range(count):
        if number == pause_at:
            assert seen.wait(PATIENCE)
        yield np.float32(number)


def read(queue, count, seen, after):
    """Iterate until ``count`` elements have come; say when there are ``after``."""
    found = []
    while len(found) < count:
        for element in queue:
            found.append(float(element))
            if len(found) == after:
                seen.set()
    return found


@pytest.mark.parametrize("how", ["iterator", "dequeue"])
def test_a_thread_reads_each_element_once_and_in_order_while_the_run_goes_on(how):
    """The infeed stops at element 30 until the reader has got 20 of those before."""
    outfeed, seen = IPUOutfeedQueue(), threading.Event()
    connected = threading.Event()

    def dequeue():
        found = []
        assert connected.wait(PATIENCE)
        while len(found) < 60:
            found.extend(outfeed.dequeue().tolist())
            if len(found) >= 20:
                seen.set()
        return found

    def stream():
        for number in numbers(60, 30, seen):
            yield number
            connected.set()

    reader = Beside(read, outfeed, 60, seen, 20) if how == "iterator" else Beside(dequeue)
    loops.repeat(60, lambda x: [outfeed.enqueue(x)], None, IPUInfeedQueue(stream()))
    assert reader.end() == list(range(60))
    assert len(outfeed) == 0


def test_two_readers_share_what_comes():
    outfeed = IPUOutfeedQueue()
    done = threading.Event()

    def share():
        own = []
        while not done.is_set():
            own.extend(float(element) for element in outfeed)
        return own

    readers = [Beside(share), Beside(share)]
    loops.repeat(200, lambda x: [outfeed.enqueue(x)], None, IPUInfeedQueue(numbers(200)))
    while len(outfeed):
        time.sleep(0.001)
    done.set()
    parts = [reader.end() for reader in readers]
    assert all(part == sorted(part) for part in parts)
    assert sorted(parts[0] + parts[1]) == list(range(200))


def test_the_mode_last_gives_the_last_that_has_come():
    """A run of the pipeline sends its last element alone; the second run waits until the first one's was seen."""
    outfeed, seen = IPUOutfeedQueue(IPUOutfeedMode.LAST), threading.Event()
    stages = [lambda x: x, lambda x: x]
    infeed = IPUInfeedQueue(numbers(16, 8, seen))
    ran = pipelining_ops.pipeline(stages, 8, infeed_queue=infeed, outfeed_queue=outfeed)

    def watch():
        found = [float(*outfeed.dequeue())]
        seen.set()
        while found[-1] < 15:
            found.append(float(*outfeed.dequeue()))
        return found

    watcher = Beside(watch)
    ran.run()
    assert sorted(set(watcher.end())) == [7, 15]
    assert float(*outfeed.dequeue()) == 15  # again and again


def test_waiting_for_completion():
    outfeed, seen = IPUOutfeedQueue(), threading.Event()

    def whole():
        assert seen.wait(PATIENCE)
        return outfeed.dequeue(wait_for_completion=True).tolist()

    def stream():
        for number in numbers(40):
            yield number
            if number == 1:  # the first alone is read before the queue is connected
                seen.set()
            if number == 20:  # long enough for a reader that does not wait to end with what has come
                reader.join(0.2)

    reader = Beside(whole)
    loops.repeat(40, lambda x: [outfeed.enqueue(x)], None, IPUInfeedQueue(stream()))
    assert reader.end() == list(range(40))
    assert outfeed.dequeue(wait_for_completion=True).shape == (0,)


def test_replicas_parts_come_together():
    outfeed, seen, config = IPUOutfeedQueue(), threading.Event(), IPUConfig()
    config.auto_select_ipus = 4

    def pairs():
        found = []
        while len(found) < 16:
            found += [element.tolist() for (element,) in outfeed]
            seen.set()
        return found

    reader = Beside(pairs)
    infeed = IPUInfeedQueue(numbers(32, 24, seen))
    stages = [lambda x: x, lambda x: x]
    pipelining_ops.pipeline(stages, 8, repeat_count=2, infeed_queue=infeed, outfeed_queue=outfeed, config=config)
    assert reader.end() == [[2 * at, 2 * at + 1] for at in range(16)]


def test_a_reader_learns_that_the_run_has_failed_when_it_has_got_what_came_before():
    outfeed, got = IPUOutfeedQueue(), []

    def forever():
        while True:
            got.extend(float(element) for element in outfeed)

    reader = Beside(forever)
    text = "the infeed's dataset ended after 5 elements"
    with pytest.raises(ModelError, match=text):
        loops.repeat(9, lambda x: [outfeed.enqueue(x)], None, IPUInfeedQueue(numbers(5)))
    with pytest.raises(ProgramStateError, match=f"queue has failed after 5 elements: ModelError: .*{text}"):
        reader.end()
    assert got == [0, 1, 2, 3, 4]
    assert outfeed.dequeue().shape == (0,)  # who was told by the run itself is not told again


ENDS = """
import threading
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
outfeed = IPUOutfeedQueue()
def read():
    while True:
        list(outfeed)
readers = [threading.Thread(target=read) for _ in range(2)]
for reader in readers:
    reader.start()
raise ValueError("before the program was built")
"""


def test_a_reader_does_not_outlive_a_program_that_fails_before_it_is_built():
    ended = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 1
    assert ended.stderr.count("nothing more comes to this outfeed queue after 0 elements: all threads but those") == 2
    assert "ValueError: before the program was built" in ended.stderr


def compiled(outfeed, dataset, count):
    infeed = IPUInfeedQueue(dataset)
    tf.Session().run(infeed.initializer)
    return ipu_compiler.compile(lambda: loops.repeat(count, lambda x: [outfeed.enqueue(x)], None, infeed))


def test_sessions_in_two_threads():
    """One trains, one dequeues, as programs of TensorFlow 1 have it."""
    contextvars.copy_context().run(train_and_dequeue)


def train_and_dequeue():
    outfeed, seen, found = IPUOutfeedQueue(), threading.Event(), []
    program = compiled(outfeed, numbers(60, 30, seen), 60)
    dequeue = outfeed.dequeue()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        training = Beside(session.run, program)
        while len(found) < 60:
            found.extend(session.run(dequeue).tolist())
            if len(found) >= 20:
                seen.set()
        training.end()
    assert found == list(range(60))


def learned(rate, seed):
    """Train in this thread; returns the losses, and the IPUs of the system."""
    tf.set_random_seed(seed)
    outfeed = IPUOutfeedQueue()
    config = IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()

    def body(x):
        loss = tf.reduce_mean((x @ tf.get_variable("w", [4, 1]) - 1) ** 2)
        return [outfeed.enqueue(loss), tf.train.GradientDescentOptimizer(rate).minimize(loss)]

    infeed = IPUInfeedQueue(tf.data.Dataset.from_tensors(np.eye(4, dtype=np.float32)).repeat())
    loops.repeat(150, body, None, infeed)
    return outfeed.dequeue().tolist()


def test_programs_in_threads_of_their_own_compute_what_they_compute_alone():
    asked = [(0.1, 1), (0.2, 2), (0.3, 1)]
    alone = [Beside(learned, *each).end() for each in asked]
    together = [each.end() for each in [Beside(learned, *each) for each in asked]]
    assert together == alone
    assert len({losses[0] for losses in alone}) == 2  # by two seeds
    assert all(losses[-1] < losses[0] / 10 for losses in alone)


def test_a_thread_has_the_configuration_and_seed_of_the_program_that_starts_it():
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    try:
        (found,) = Beside(get_ipu_config).end()
        assert found.auto_select_ipus == 2
    finally:
        reset_ipu_configuration()
    with pytest.raises(ProgramStateError, match="No IPU devices configured"):
        Beside(get_ipu_config).end()


def test_what_is_remembered_belongs_to_a_context_and_to_threads_that_begin():
    value = Remembered("value", 0)
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


def test_a_program_in_a_thread_has_the_variables_of_the_one_that_starts_it():
    def program():
        tf.set_random_seed(0)
        weight, outfeed = tf.Variable(np.float32(1), name="weight"), IPUOutfeedQueue()

        @tf.function
        def step():
            for _ in tf.range(3):
                with tf.GradientTape() as tape:
                    loss = (weight - 3) ** 2
                sgd.apply_gradients([(tape.gradient(loss, weight), weight)])
                outfeed.enqueue(loss)

        sgd = tf.train.GradientDescentOptimizer(0.25)
        Beside(IPUStrategy().run, step).end()
        return outfeed.dequeue().tolist(), float(weight.numpy())

    assert contextvars.copy_context().run(program) == ([4, 1, 0.25], 2.75)


def test_steps_are_printed_while_the_run_goes_on(capsys):
    """The data of step 50 does not come before step 20 has been printed, and the run has not ended by then."""
    outfeed, seen = IPUOutfeedQueue(), threading.Event()

    def show():
        counter = 0
        while counter != 100:
            for loss in outfeed:
                print("Step", counter, "loss = ", loss.numpy())
                counter += 1
                if counter > 20:
                    seen.set()

    @tf.function(jit_compile=True)
    def training(count, iterator):
        for _ in tf.range(count):
            outfeed.enqueue(next(iterator))

    reader = Beside(show)
    dataset = tf.data.Dataset.from_generator(lambda: numbers(101, 50, seen))
    IPUStrategy().run(training, args=[100, iter(dataset)])
    assert seen.is_set()
    reader.end()
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"Step {step} loss =  {float(step)}" for step in range(100)]
