"""What the extension does: run it beside the built module."""

import metal_scaled

import metal_dlpack as md


def main() -> None:
    array = md.full(4, 1.0)
    array[2:].fill(3.0)
    print(f"Every other item, times ten: {metal_scaled.scaled(array[::2], 10.0).tolist()}")
    stream = md.Stream()
    array.fill(7.0, stream=stream)  # returns at once; the extension waits for it
    print(f"After work on the GPU: {metal_scaled.scaled(array, 0.5).tolist()}")


if __name__ == "__main__":
    main()
