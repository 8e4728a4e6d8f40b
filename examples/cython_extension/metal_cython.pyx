# cython: language_level=3
"""A Cython library on metal_dlpack's C API."""

from libc.stdint cimport int64_t

from metal_dlpack cimport (
    METAL_DLPACK_DEFAULT,
    metal_dlpack,
    metal_dlpack_access,
    metal_dlpack_import,
    metal_dlpack_view,
)

metal_dlpack_import()


def scaled(array, float factor):
    """scaled(array, factor): a float32 vector's items times factor, as an Array of their own."""
    cdef metal_dlpack_view view
    cdef metal_dlpack_access reading, writing
    metal_dlpack.array_get(array, &view)
    if (view.ndim, view.dtype.code, view.dtype.bits, view.dtype.lanes) != (1, 2, 32, 1):  # code 2: kDLFloat
        raise TypeError("scaled: a float32 Array with one axis is needed.")
    result = metal_dlpack.array_new(1, view.shape, view.dtype, METAL_DLPACK_DEFAULT)
    metal_dlpack.array_begin(array, 0, &reading)  # waits for work in flight
    try:
        metal_dlpack.array_begin(result, 1, &writing)
        with nogil:  # this function keeps both Arrays alive
            scale_items(<const float *>reading.address, view.strides[0], view.nitems, factor, <float *>writing.address)
        metal_dlpack.array_end(result, &writing, 1)
    finally:
        metal_dlpack.array_end(array, &reading, 0)
    return result


cdef void scale_items(const float *source, int64_t stride, int64_t count, float factor, float *target) noexcept nogil:
    cdef int64_t i
    for i in range(count):
        target[i] = factor * source[i * stride]
