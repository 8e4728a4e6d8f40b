"""The beginning of a program whose kernel races with itself, and `run(times)`, which launches it and waits."""

#: The access that comes too early.
RACE = "shared[63 - t]"
LINES = (10, 11)
RACY = f'''\
import atexit, multiprocessing, os, signal, subprocess, sys, threading, time
import metal_dlpack as md

K = md.kernel("""
#include <metal_stdlib>
using namespace metal;
kernel void turned(device float *x, uint t [[thread_index_in_threadgroup]])
{{
    threadgroup float shared[64];
    shared[t] = x[t];
    x[t] = {RACE};
}}
""")


def run(times=1):
    x = md.zeros(64)
    for _ in range(times):
        K(x, n=64, group=64)
    x.device.synchronize()


'''
CLEAN = RACY.replace(RACE, "shared[t]")
