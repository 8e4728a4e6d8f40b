"""What the example extension does: run it after `python setup.py build_ext --inplace`."""

import metal_example

import metal_dlpack as md


def main() -> None:
    array = metal_example.count(2, 3)
    print(f"Made in C: {array.tolist()}")
    metal_example.scale(array[:, ::-2], 10.0)
    print(f"Two columns scaled in C: {array.tolist()}, total {metal_example.total(array)}")
    print(f"What a DLPack consumer in C sees: {metal_example.describe(array[1:])}")
    again = metal_example.round_trip(array)
    print(f"By way of an owned tensor, the same memory: {md.shares_memory(again, array)}")
    assert array.tolist() == [[0.0, 1.0, 20.0], [30.0, 4.0, 50.0]]


if __name__ == "__main__":
    main()
