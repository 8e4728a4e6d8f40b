"""Forked children and threads."""

import gc
import os
import threading

import numpy as np

import metal_dlpack as md

from .asking import IS_MAC, check, question


def exit_code_of_fork(run) -> int:
    """Run a function in a forked child; its exit code is 1 if it raises."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run()
            code = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@question("fork", "the child is refused with a sentence, and ends quietly")
def fork():
    arrays = [md.full(8, 3, "int32"), md.full(8, 3, "int32", storage="private")]

    def in_child():
        for call in (lambda: md.zeros(4), lambda: np.array(arrays[1])):
            try:
                call()
            except md.MetalError as error:
                print(error, flush=True)
            else:
                check(False, "a child used Metal")
        arrays.clear()
        gc.collect()

    code = exit_code_of_fork(in_child)
    print("child:", code)
    check(code == 0, "the child")
    check(md.zeros(4).tolist() == [0] * 4, "the parent, afterwards")


@question("memory in a forked child", "shared memory is read; a signal: it is not mapped there", is_for_people=IS_MAC)
def forked_memory():
    whole = {"of Metal": md.full(8, 3, "int32"), "of NumPy": md.asarray(np.full(8, 3, "int32"), copy=False)}
    for what, array in whole.items():

        def in_child(array=array):
            check(np.asarray(array).tolist() == [3] * 8, "other items")

        code = exit_code_of_fork(in_child)
        print(what, "read" if code == 0 else f"not read, exit {code}")
        check(code == 0 or IS_MAC, what)


@question("threads", "no crash, no lost byte")
def threads():
    wrong: list[object] = []

    def work(seed):
        for turn in range(200):
            value = (seed + turn) % 100
            array = md.full(1000, value, "uint8", storage="private")
            if bytes(np.array(array)) != bytes([value]) * 1000:
                wrong.append((seed, turn))

    started = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    check(not wrong, f"bytes were lost: {wrong[:5]}")
    print("8 threads, 200 private arrays each: equal")
