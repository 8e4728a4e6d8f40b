"""What the nanobind extension does: run it after `python setup.py build_ext --inplace`."""

import metal_nanobind

import metal_dlpack as md


def main() -> None:
    array = md.asarray([1.0, 2.0, 3.0, 4.0])
    handle, offset, *_ = metal_nanobind.describe(array[1:])
    print(f"C++ sees the id<MTLBuffer> {handle == array.buffer.handle} at byte {offset}")
    tail = md.from_dlpack(metal_nanobind.tail(array, 2))
    tail[0] = 42.0
    print(f"A write to what C++ gave back: {array.tolist()}")
    keeper = metal_nanobind.Keeper(array)
    del array, tail
    print(f"C++ keeps the memory: {md.from_dlpack(keeper.view()).tolist()}")
    print(f"Memory made in C++: {md.from_dlpack(metal_nanobind.zeros(3)).tolist()}")


if __name__ == "__main__":
    main()
