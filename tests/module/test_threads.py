"""The number of threads of a large copy: the variable, the functions, threads that are not there."""

import os
import threading
import time

import pytest
from children import run_child
from eventually import PATIENCE, until

import metal_dlpack as md


@pytest.fixture
def number():
    """set_num_threads, undone at the end."""
    before = md.get_num_threads()
    yield md.set_num_threads
    md.set_num_threads(before)


def test_the_number_is_kept_and_none_gives_the_default(number):
    number(3)
    assert md.get_num_threads() == 3
    number(None)
    assert 1 <= md.get_num_threads() <= 4


def test_another_number_is_refused(number, subtests):
    number(2)
    wrongs = [(0, ValueError), (-1, ValueError), (17, ValueError), (2**70, OverflowError), ("2", TypeError)]
    for wrong, error in wrongs:
        with subtests.test(wrong=wrong), pytest.raises(error):
            md.set_num_threads(wrong)
        assert md.get_num_threads() == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
def test_the_variable_is_the_default_or_warned_of_once():
    """It is read once a process: each value has a child of one program."""
    wanted = {"1": "1", "7": "7", "16": "16"} | dict.fromkeys(["0", "17", "many", "2x", "-1"])
    done = run_child(
        f"""
        import os
        for value in {list(wanted)}:
            if os.fork() == 0:
                os.dup2(1, 2)
                os.environ["METAL_DLPACK_NUM_THREADS"] = value
                import metal_dlpack as md
                print("=", md.get_num_threads(), end="|", flush=True)
                os._exit(0)
            os.wait()
        """
    )
    answers = done.stdout.split("|")[:-1]
    assert len(answers) == len(wanted), done.stderr
    for (value, number), answer in zip(wanted.items(), answers, strict=True):
        warning, _, found = answer.rpartition("= ")
        if number:
            assert (warning, found) == ("", number)
        else:
            assert warning.count("RuntimeWarning") == 1 and repr(value) in warning
            assert 1 <= int(found) <= 4


def settled_threads():
    """How many there are once those of earlier tests have ended."""
    before = None
    while before != (now := len(os.listdir("/proc/self/task"))):
        before = now
        time.sleep(0.05)
    return now


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads in /proc")
def test_no_thread_is_started_before_it_is_needed_and_none_stays(number):
    number(4)
    small, large = md.zeros((100, 100)), md.zeros((2000, 2000))
    before = settled_threads()
    seen = set()
    is_over = threading.Event()

    def watch():
        while not is_over.is_set():
            seen.add(len(os.listdir("/proc/self/task")))

    watcher = threading.Thread(target=watch)
    watcher.start()
    while not seen:
        time.sleep(0.001)
    small.copy_from(small.T)
    time.sleep(0.02)
    assert max(seen) == before + 1  # the watcher
    other = md.zeros((2000, 2000))
    end = time.monotonic() + PATIENCE  # a busy machine may leave the watcher no moment of a copy
    while max(seen) <= before + 1 and time.monotonic() < end:
        other.copy_from(large.T)
    is_over.set()
    watcher.join()
    assert max(seen) > before + 1
    until(lambda: len(os.listdir("/proc/self/task")) <= before)


def test_a_large_copy_lets_other_python_threads_run(number):
    """With one processor's worth of work the other thread still gets on: the GIL is not held."""
    number(1)
    src, dst = md.zeros((4000, 4000)), md.zeros((4000, 4000))
    ticks, is_over = [], threading.Event()

    def tick():
        while not is_over.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0005)

    ticker = threading.Thread(target=tick)
    ticker.start()
    start = time.perf_counter()
    for _ in range(5):
        dst.copy_from(src.T)
    end = time.perf_counter()
    is_over.set()
    ticker.join()
    within = sum(start < at < end for at in ticks)
    assert within > 5 + (end - start) / 0.05
