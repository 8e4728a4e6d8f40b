"""How textures, samplers and what takes them are called, and the kinds of kernels that nobody makes: see fault_calls.py."""

import functools

import metal_dlpack as md

array, stream = md.zeros((4, 8)), md.Stream()
odd, pixels = md.zeros((4, 6), "int16", storage="private")[1:, ::2], md.zeros((2, 3, 4), "uint8")
texture, copied = md.texture(array), md.texture(array, copy=True)
signs, copied_of = md.zeros((1, 1)), functools.partial(md.texture, copy=True)
image, leveled = md.zeros((4, 4)), md.texture(array, copy=True, mip_levels=2)
INSTANCES = {"Texture": texture, "Sampler": md.sampler("linear")}


def calls(refused):
    """As CALLS of fault_calls.py, which has `refused`."""
    return {
        "texture": [
            lambda: md.texture(array, label="image"),
            lambda: md.texture(pixels, "bgra8Unorm", copy=True, stream=stream),
            lambda: md.texture(odd, copy=True),
            lambda: md.texture(image, mip_levels="all", copy=True),
            lambda: md.texture([odd, odd[2:, 2:]], copy=True),
            lambda: refused(copied_of, ValueError, [odd, odd]),
            lambda: refused(copied_of, TypeError, (odd, signs)),
            lambda: refused(functools.partial(copied_of, mip_levels="most"), TypeError, image),
            lambda: refused(md.texture, BufferError, odd),
            lambda: refused(md.texture, TypeError, array, "r8Uint"),
            lambda: refused(md.texture, ValueError, array, "red"),
        ],
        "sampler": [
            lambda: md.sampler("linear", address=("repeat", "clamp_to_edge"), lod=(0, 2)),
            lambda: refused(md.sampler, ValueError, "cubic"),
        ],
        "Texture.array": [lambda: texture.array, lambda: copied.array],
        "Texture.arrays": [lambda: texture.arrays, lambda: leveled.arrays],
        "Texture.__new__": [lambda: refused(md.Texture, TypeError)],
        "Sampler.__new__": [lambda: refused(md.Sampler, TypeError)],
        "Argument.__new__": [lambda: refused(md.Argument, TypeError)],
        "Kernel.__new__": [lambda: refused(md.Kernel, TypeError)],
        "Library.__new__": [lambda: refused(functools.partial(md.Library, math="quick"), ValueError, "")],
    }
