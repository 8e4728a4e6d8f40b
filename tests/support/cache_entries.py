"""Entries of a cache of compiled kernels, for its tests."""

from softmetal.msl import cache


def writes(data):
    return lambda path: path.write_bytes(data)


def refuses(path):
    raise AssertionError("it is there already")


def stored(key=("key",), data=b"image"):
    return cache.made(key, ".so", writes(data))
