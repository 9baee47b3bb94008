"""Worker processes that are left before they are done."""

import subprocess
import sys
import time
import warnings

from joblib.externals.loky.process_executor import _ExecutorManagerThread

from ipusim.base.workers import side_by_side


def test_calls_that_an_interrupt_leaves_undone_are_left_without_a_warning():
    """An interrupt comes where results are used, and the generator of them is closed."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        results = side_by_side(time.sleep, [(0.001,), *[(0.2,)] * 20], 2, 1)
        assert next(results) is None
        results.close()
    assert [str(warning.message) for warning in told] == []


def test_a_call_that_an_interrupt_meets_at_its_start_prints_nothing(monkeypatch, capfd):
    """Loky's thread looks for such a call among those that it has dropped already."""
    flag_as_ended = _ExecutorManagerThread.flag_executor_shutting_down

    def flag_and_begin_a_dropped_call(thread):
        flag_as_ended(thread)
        raise KeyError(7)

    monkeypatch.setattr(_ExecutorManagerThread, "flag_executor_shutting_down", flag_and_begin_a_dropped_call)
    results = side_by_side(time.sleep, [(0.001,), *[(0.2,)] * 20], 2, 1)
    assert next(results) is None
    results.close()
    assert capfd.readouterr().err == ""


def test_only_the_parent_answers_an_interrupt():
    """In a process of its own, whose trackers of resources do not run yet: their start unblocks signals."""
    code = """if __name__ == "__main__":
    import signal
    from ipusim.base.workers import side_by_side
    masks = [*side_by_side(signal.pthread_sigmask, [(signal.SIG_BLOCK, [])] * 4, 2, 1)]
    print([signal.SIGINT in mask for mask in [*masks, signal.pthread_sigmask(signal.SIG_BLOCK, [])]])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[True, True, True, True, False]\n", "")
