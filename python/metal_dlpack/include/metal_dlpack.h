/* metal_dlpack.h: the C API of metal_dlpack, for extension modules in C, C++ and Cython.
 *
 *     #include <metal_dlpack.h>                compile with -I of metal_dlpack.get_include();
 *     nothing to link
 *
 *     if (metal_dlpack_import() < 0) {         once, in the module's exec function: for all
 *                                              its source files
 *         return -1;
 *     }
 *     metal_dlpack_view view;
 *     if (metal_dlpack->array_get(op, &view) < 0) {
 *         return NULL;
 *     }
 *
 * Ownership: *owned (+1)*: the caller must release it.  *borrowed until X*: valid until then,
 *            never released by the caller.  *steals*: the callee owns the argument from the call
 *            on, even if the call fails.
 * Threads:   every function needs the GIL (an attached thread).  Functions marked [waits] release
 *            it while they allocate, copy or wait for the GPU: other threads run meanwhile.
 * Failure:   NULL or -1 with one Python exception set, a full sentence; nothing is left
 *            allocated, and out parameters are zero.
 * Stability: within a major version functions are only added, at the end of the table, and
 *            structs never change.  metal_dlpack_import() refuses another major version, and a
 *            minor version that is older than the header that you compiled with.
 * Objects:   the table is static for the process and the same in every interpreter; no Python
 *            object is in it.
 */
#ifndef METAL_DLPACK_H
#define METAL_DLPACK_H

#include <Python.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define METAL_DLPACK_API_MAJOR 1
#define METAL_DLPACK_API_MINOR 0
#define METAL_DLPACK_API_CAPSULE "metal_dlpack._core._C_API"

/* dlpack.h's struct, version 1: include that header as well to look inside. */
struct DLManagedTensorVersioned;

/* An element type, member for member a DLDataType: {2, 32, 1} is float32.  SPEC dlpack.h
 * DLDataTypeCode. */
typedef struct metal_dlpack_dtype {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} metal_dlpack_dtype;

/* Where Metal keeps the bytes; METAL_DLPACK_DEFAULT is what metal_dlpack.get_storage_mode()
 * says. */
#define METAL_DLPACK_DEFAULT 0
#define METAL_DLPACK_SHARED 1
#define METAL_DLPACK_MANAGED 2
#define METAL_DLPACK_PRIVATE 3

/* An Array as numbers.  Every pointer is borrowed until the Array dies: an Array never changes
 * its shape, and its buffer cannot be closed. */
typedef struct metal_dlpack_view {
    void *handle; /* the id<MTLBuffer>; NULL if the buffer has no bytes */
    /* CPU address of element 0, byte_offset included; NULL for private storage and where there
     * are no items.  To read or write there use array_begin. */
    void *address;
    int64_t byte_offset;    /* of element 0, from the start of the MTLBuffer */
    int64_t nbytes;         /* of all items, packed */
    int64_t nitems;         /* 1 for ndim 0 */
    const int64_t *shape;   /* ndim extents; never NULL */
    const int64_t *strides; /* ndim strides in items, also negative ones; never NULL */
    int32_t ndim;           /* 0 to 64 */
    int32_t storage;        /* METAL_DLPACK_SHARED, _MANAGED or _PRIVATE */
    /* 1: nothing may be written through this Array, not even by the GPU */
    int32_t is_readonly;
    metal_dlpack_dtype dtype;
    /* 1: each item of less than a byte has a byte of its own; 0: they are packed, the first one
     * at the lowest bits of its byte. */
    int32_t is_padded;
} metal_dlpack_view;

/* An access by the CPU, between array_begin and array_end. */
typedef struct metal_dlpack_access {
    /* where element 0 is: borrowed until array_end; NULL if there are no items */
    void *address;
    void *reserved[5]; /* for metal_dlpack */
} metal_dlpack_access;

typedef struct metal_dlpack_api {
    uint32_t major, minor;

    /* ---- looking at an Array ---- */

    /* 1 if `op` is an Array, else 0.  Never fails. */
    int (*array_check)(PyObject *op);

    /* Fills `out`.  -1 with TypeError where `op` is not an Array.  Waits for nothing: GPU work
     * may be pending.  The handle counts as given away: later reads by the CPU expect that it
     * was written. */
    int (*array_get)(PyObject *op, metal_dlpack_view *out);

    /* ---- making ---- */

    /* An Array in C order with memory of its own, whose bytes are not set: owned (+1).
     * `shape` (ndim extents) may be NULL for ndim 0.  NULL with ValueError (shape, dtype or
     * storage), MemoryError, MetalError.  [waits] */
    PyObject *(*array_new)(int ndim, const int64_t *shape, metal_dlpack_dtype dtype,
                           int storage);

    /* A Buffer over the first `nbytes` of an id<MTLBuffer>, which is retained: owned (+1).
     * `owner` (NULL: nobody) is kept alive (a new reference) until the Buffer and all that
     * shares its memory are gone; the last of them may go on any thread, the owner always goes
     * with the GIL.  NULL with ValueError: not an MTLBuffer of a known device, or nbytes
     * passes its end. */
    PyObject *(*buffer_wrap)(void *handle, size_t nbytes, PyObject *owner);

    /* An Array over a Buffer, which it keeps alive: owned (+1).  `strides` in items, NULL for
     * C order. NULL with TypeError (not a Buffer) or ValueError: items outside the Buffer or
     * off their alignment, sub-byte items that are not compact. */
    PyObject *(*buffer_array)(PyObject *buffer, int ndim, const int64_t *shape,
                              const int64_t *strides, metal_dlpack_dtype dtype,
                              int64_t byte_offset);

    /* ---- DLPack ---- */

    /* An Array of a tensor on Metal or the CPU: owned (+1).  Steals `tensor`: its deleter runs
     * once, at once where the call fails, else when the memory is no longer used.  `copy`: -1
     * if needed, 0 never, 1 always.  NULL with BufferError, CopyRequiredError, MemoryError,
     * MetalError.  [waits] */
    PyObject *(*array_from_dlpack)(struct DLManagedTensorVersioned *tensor, int copy);

    /* The tensor of an Array, on Metal (8, 0): owned, ended by its own deleter, on any thread
     * and without the GIL.  It outlives the Array.  `copy` as above.  NULL with TypeError,
     * BufferError, CopyRequiredError, MemoryError, MetalError.  [waits] */
    struct DLManagedTensorVersioned *(*array_to_dlpack)(PyObject *op, int copy);

    /* ---- the items, by the CPU ---- */

    /* Begins an access: waits for what metal_dlpack has to wait for, and brings private memory
     * to the CPU. `for_writing` 0 or 1; a writer may also read.  The caller keeps `op` alive,
     * and calls array_end once.  -1 with TypeError, ValueError (a read-only Array),
     * MemoryError, MetalError: then there is no access to end.  [waits] */
    int (*array_begin)(PyObject *op, int for_writing, metal_dlpack_access *out);

    /* Ends it.  `is_written` 1: what was written reaches the GPU; ValueError where the access
     * was begun for reading, or on another Array.  0: nothing is written back, and this may be
     * called with an exception set, which stays. -1 with an exception: the access is over all
     * the same.  [waits] */
    int (*array_end)(PyObject *op, metal_dlpack_access *access, int is_written);
} metal_dlpack_api;

/* The table: one pointer for all source files of an extension module, C and C++ together, which
 * metal_dlpack_import() sets in any of them.  Weak: the linker keeps one of the definitions.
 * Hidden: other modules of the process have their own. */
#if !defined(__GNUC__)
#error "metal_dlpack.h needs GCC or clang, whose weak symbols files of one module share."
#endif
__attribute__((weak, visibility("hidden"))) const metal_dlpack_api *metal_dlpack = NULL;

/* Fills `metal_dlpack` for this module: 0, or -1 with ImportError.  Cheap to call again. */
static inline int
metal_dlpack_import(void)
{
    const metal_dlpack_api *api;
    PyObject *module, *capsule;
    module = PyImport_ImportModule("metal_dlpack._core");
    if (module == NULL) {
        return -1;
    }
    capsule = PyObject_GetAttrString(module, "_C_API");
    Py_DECREF(module);
    if (capsule == NULL || !PyCapsule_IsValid(capsule, METAL_DLPACK_API_CAPSULE)) {
        Py_XDECREF(capsule);
        PyErr_SetString(PyExc_ImportError,
                        "The installed metal_dlpack has no C API; install a later one.");
        return -1;
    }
    api = (const metal_dlpack_api *)PyCapsule_GetPointer(capsule, METAL_DLPACK_API_CAPSULE);
    Py_DECREF(capsule); /* the table is static */
    if (api->major != METAL_DLPACK_API_MAJOR || (int)api->minor < METAL_DLPACK_API_MINOR) {
        PyErr_Format(
            PyExc_ImportError,
            "The installed metal_dlpack has version %d.%d of its C API, and this module was "
            "compiled for version %d.%d; install a metal_dlpack that has it, or compile again.",
            (int)api->major, (int)api->minor, METAL_DLPACK_API_MAJOR, METAL_DLPACK_API_MINOR);
        return -1;
    }
    metal_dlpack = api;
    return 0;
}

#ifdef __cplusplus
}
#endif

#endif /* METAL_DLPACK_H */
