# The C API for Cython: `from metal_dlpack cimport metal_dlpack, metal_dlpack_import`.
#
# metal_dlpack.h is the reference: ownership, threads and failures are told there.  `object` stands for a reference that
# Cython counts, PyObject* for one that may be NULL.  Compile with include_dirs=[metal_dlpack.get_include()].

from cpython.ref cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t


cdef extern from "metal_dlpack.h":
    const int METAL_DLPACK_API_MAJOR
    const int METAL_DLPACK_API_MINOR
    const int METAL_DLPACK_DEFAULT
    const int METAL_DLPACK_SHARED
    const int METAL_DLPACK_MANAGED
    const int METAL_DLPACK_PRIVATE

    struct DLManagedTensorVersioned:
        pass

    ctypedef struct metal_dlpack_dtype:
        uint8_t code
        uint8_t bits
        uint16_t lanes

    ctypedef struct metal_dlpack_view:
        void *handle
        void *address
        int64_t byte_offset
        int64_t nbytes
        int64_t nitems
        const int64_t *shape
        const int64_t *strides
        int32_t ndim
        int32_t storage
        int32_t is_readonly
        metal_dlpack_dtype dtype
        int32_t is_padded

    ctypedef struct metal_dlpack_access:
        void *address

    ctypedef struct metal_dlpack_api:
        uint32_t major
        uint32_t minor
        int (*array_check)(object op)
        int (*array_get)(object op, metal_dlpack_view *out) except -1
        object (*array_new)(int ndim, const int64_t *shape, metal_dlpack_dtype dtype, int storage)
        object (*buffer_wrap)(void *handle, size_t nbytes, PyObject *owner)
        object (*buffer_array)(object buffer, int ndim, const int64_t *shape, const int64_t *strides,
                               metal_dlpack_dtype dtype, int64_t byte_offset)
        object (*array_from_dlpack)(DLManagedTensorVersioned *tensor, int copy)
        DLManagedTensorVersioned *(*array_to_dlpack)(object op, int copy) except NULL
        int (*array_begin)(object op, int for_writing, metal_dlpack_access *out) except -1
        int (*array_end)(object op, metal_dlpack_access *access, int is_written) except -1

    const metal_dlpack_api *metal_dlpack
    int metal_dlpack_import() except -1
