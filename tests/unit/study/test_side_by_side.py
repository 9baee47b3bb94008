"""What is made side by side is what is made alone, whatever becomes of the children that make a part of it."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from ipusim.app.run_folder import side_by_side as module
from ipusim.app.run_folder.side_by_side import Ahead, side_by_side


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch):
    """Three cores, and no thread that a test before has left: TensorFlow keeps some of programs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    left = {*threading.enumerate()} - {threading.current_thread()}
    monkeypatch.setattr(threading, "active_count", lambda: len({*threading.enumerate()} - left))


@pytest.fixture
def children(monkeypatch):
    """The processes of all children that begin."""
    begun, fork = [], os.fork

    def noted():
        process = fork()
        if process:
            begun.append(process)
        return process

    monkeypatch.setattr(module.os, "fork", noted)
    return begun


def makers():
    """Three, each of which says which process has made it."""
    return [lambda name=name: {name: str(os.getpid()).encode(), f"{name}.more": bytes(1 << 17)} for name in "abc"]


def check_ended(children):
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


def test_a_child_makes_each_of_the_first_and_this_process_the_rest(children):
    made = side_by_side(makers())
    assert [*made] == ["a", "a.more", "b", "b.more", "c", "c.more"]
    assert [int(made[name]) for name in "abc"] == [*children, os.getpid()]
    assert made["a.more"] == bytes(1 << 17)
    check_ended(children)


def test_one_core_begins_no_child(children, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert {int(side_by_side(makers())[name]) for name in "abc"} == {os.getpid()}
    assert children == []


def test_cores_that_are_busy_begin_no_child(children):
    made = side_by_side(makers(), busy=1)
    assert [int(made[name]) for name in "abc"] == [*children, os.getpid(), os.getpid()]
    assert len(side_by_side(makers(), busy=9)) == 6
    assert len(children) == 1


def test_no_child_begins_beside_another_thread_which_may_hold_a_lock(children):
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert {int(side_by_side(makers())[name]) for name in "abc"} == {os.getpid()}
    finally:
        done.set()
        thread.join()
    assert children == []


def test_what_a_child_that_is_killed_did_not_bring_is_made_here(children):
    parent = os.getpid()

    def killed():
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"a": b"made here"}

    assert side_by_side([killed, *makers()[1:]])["a"] == b"made here"
    assert len(children) == 2
    check_ended(children)


def test_an_error_of_a_child_is_raised_here_and_no_child_prints_it(children, capfd):
    def fails():
        raise ValueError("no such colour")

    with pytest.raises(ValueError, match="no such colour"):
        side_by_side([fails, *makers()[1:]])
    assert capfd.readouterr() == ("", "")
    check_ended(children)


def test_an_interrupt_ends_the_children_at_once(children):
    def interrupted():
        raise KeyboardInterrupt

    def slow():
        time.sleep(60)
        return {}

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        side_by_side([slow, slow, interrupted])
    assert time.monotonic() - start < 30
    assert len(children) == 2
    check_ended(children)


def test_where_no_process_can_begin_everything_is_made_here(monkeypatch):
    def refused():
        raise BlockingIOError("too many processes")

    monkeypatch.setattr(module.os, "fork", refused)
    before = len([*Path("/proc/self/fd").iterdir()])
    assert {int(side_by_side(makers())[name]) for name in "abc"} == {os.getpid()}
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def doubled(number):
    return {"made": str(2 * number).encode(), "process": str(os.getpid()).encode()}


def test_a_child_that_was_begun_ahead_makes_what_it_is_sent(children):
    with Ahead(lambda: doubled) as ahead:
        assert len(children) == 1
        assert ahead.send(21)
        assert ahead.results() == {"made": b"42", "process": str(children[0]).encode()}
    check_ended(children)


def test_a_child_takes_more_than_a_pipe_holds_while_it_prepares(children):
    def prepare():
        time.sleep(0.01)
        return lambda sent: {"size": str(len(sent)).encode()}

    with Ahead(prepare) as ahead:
        assert ahead.send(bytes(1 << 20))
        assert ahead.results() == {"size": b"1048576"}


def test_a_child_that_is_sent_nothing_ends_with_the_block_and_says_nothing(children, capfd):
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(KeyboardInterrupt), Ahead(lambda: doubled):
        raise KeyboardInterrupt
    check_ended(children)
    assert len([*Path("/proc/self/fd").iterdir()]) == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("fails_at", ["preparing", "making"])
def test_a_child_that_fails_brings_nothing(children, capfd, fails_at):
    def fails(*_):
        raise ValueError("no such colour")

    with Ahead(fails if fails_at == "preparing" else lambda: fails) as ahead:
        brought = ahead.results() if ahead.send(bytes(1 << 20)) else None
    assert brought is None
    assert capfd.readouterr() == ("", "")
    check_ended(children)


def test_one_core_begins_none_ahead(children, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    with Ahead(lambda: doubled) as ahead:
        assert not ahead.send(21)
        assert ahead.results() is None
    assert children == []
