/* numpy_memory.c: NumPy's large arrays in shared Metal buffers (NEP 49).
 *
 * Owns:    a copy of NumPy's own allocator, for small arrays; one a process, as NumPy is.
 * Calls:   storage.h, and NumPy through the table behind numpy's _ARRAY_API capsule.
 * Threads: NumPy may call the four functions from any thread, also without the GIL for large
 *          arrays.
 * Note:    nothing here is compiled against NumPy.  The table only grows: an entry keeps its
 *          number for as long as the ABI version (NPY_VERSION) is supported, which is why a
 *          module built against NumPy 1.22 runs with 2.x.  SPEC NumPy C-API:
 *          PyDataMem_SetHandler is 304 and PyDataMem_DefaultHandler 306 since feature version
 *          0xF (1.22); PyArray_GetNDArrayCFeatureVersion is 211 from 1.4 on.
 */
#include "module/module.h"

#include <stdint.h>
#include <string.h>

#include "array/array_numpy.h"
#include "metal/storage.h"

#define SLOT_FEATURE_VERSION 211
#define SLOT_SET_HANDLER 304
#define SLOT_DEFAULT_HANDLER 306
#define FEATURE_1_22 0xF
#define LARGE_ARRAY ((size_t)64 << 10)

/* SPEC NEP 49: PyDataMemAllocator and PyDataMem_Handler, version 1; later versions add at the
 * end. */
typedef struct numpy_allocator {
    void *context;
    void *(*malloc)(void *context, size_t nbytes);
    void *(*calloc)(void *context, size_t count, size_t itemsize);
    void *(*realloc)(void *context, void *memory, size_t nbytes);
    void (*free)(void *context, void *memory, size_t nbytes);
} numpy_allocator;

typedef struct numpy_handler {
    char name[127];
    uint8_t version;
    numpy_allocator allocator;
} numpy_handler;

/* A copy of NumPy's own, made before any of the functions below is called. */
static numpy_allocator plain;

static void *
metal_malloc(void *Py_UNUSED(context), size_t nbytes)
{
    void *memory = nbytes < LARGE_ARRAY ? NULL : storage_new_memory(nbytes);
    return memory != NULL ? memory : plain.malloc(plain.context, nbytes);
}

static void *
metal_calloc(void *Py_UNUSED(context), size_t count, size_t itemsize)
{
    size_t nbytes;
    bool is_large = !__builtin_mul_overflow(count, itemsize, &nbytes) && nbytes >= LARGE_ARRAY;
    void *memory = is_large ? storage_new_memory(nbytes) : NULL;
    if (memory == NULL) {
        return plain.calloc(plain.context, count, itemsize);
    }
    return memset(memory, 0, nbytes); /* the pool's memory may have been used before */
}

static void
metal_free(void *Py_UNUSED(context), void *memory, size_t nbytes)
{
    if (((uintptr_t)memory & 0xFFF) != 0 ||
        !storage_free_memory(memory)) { /* ours begin on a page */
        plain.free(plain.context, memory, nbytes);
    }
}

static void *
metal_realloc(void *context, void *memory, size_t nbytes)
{
    metal_storage *old = memory == NULL ? NULL : storage_find_memory(memory, 0);
    if (old == NULL || old->address != memory) {
        storage_release(old);
        /* unreached: no test makes it fail here */
        return memory == NULL ? metal_malloc(context, nbytes)
                              : plain.realloc(plain.context, memory, nbytes);
    }
    void *moved = metal_malloc(context, nbytes == 0 ? 1 : nbytes);
    if (moved != NULL) {
        memcpy(moved, memory, nbytes < old->nbytes ? nbytes : old->nbytes);
        (void)storage_free_memory(memory);
    }
    storage_release(old);
    return moved;
}

static numpy_handler handler = {
    .name = "metal_dlpack",
    .version = 1,
    .allocator = {NULL, metal_malloc, metal_calloc, metal_realloc, metal_free},
};

/* ---- NumPy's table ---- */

/* numpy._core since 2.0, numpy.core before. */
static PyObject *
import_core(void)
{
    PyObject *numpy = array_numpy_module("numpy_memory");
    if (numpy == NULL) {
        return NULL;
    }
    Py_DECREF(numpy);
    PyObject *core = PyImport_ImportModule("numpy._core._multiarray_umath");
    if (core == NULL && PyErr_ExceptionMatches(PyExc_ImportError)) {
        /* unreached: another machine, or NumPy 1 */
        PyErr_Clear();
        core = PyImport_ImportModule("numpy.core._multiarray_umath");
    }
    return core;
}

/* Static for the process; NULL with an exception. */
static void **
find_table(void)
{
    PyObject *core = import_core();
    PyObject *capsule = core == NULL ? NULL : PyObject_GetAttrString(core, "_ARRAY_API");
    void **table = capsule == NULL ? NULL : PyCapsule_GetPointer(capsule, NULL);
    Py_XDECREF(capsule);
    Py_XDECREF(core);
    if (table == NULL) {
        return NULL;
    }
    unsigned int (*feature_version)(void);
    memcpy(&feature_version, &table[SLOT_FEATURE_VERSION], sizeof feature_version);
    unsigned int version = feature_version();
    if (version < FEATURE_1_22) { /* unreached: no test makes it fail here */
        PyErr_Format(PyExc_ImportError,
                     "numpy_memory: NumPy's C API has version %u, and memory handlers come "
                     "with version %d; install NumPy 1.22 or later.",
                     version, FEATURE_1_22);
        return NULL;
    }
    return table;
}

/* Copy NumPy's own allocator into `plain`.  -1 with an exception. */
static int
copy_default_allocator(void **table)
{
    PyObject *capsule = *(PyObject **)table[SLOT_DEFAULT_HANDLER];
    const numpy_handler *found = PyCapsule_GetPointer(capsule, "mem_handler");
    if (found != NULL && plain.malloc == NULL) {
        plain = found->allocator;
    }
    return found == NULL ? -1 : 0;
}

PyDoc_STRVAR(
    set_handler_doc,
    "_numpy_set_handler($module, handler, /)\n--\n\n"
    "Make a capsule, or None for ours, the memory handler of this context; returns the one\n"
    "before.");

static PyObject *
core_set_handler(PyObject *Py_UNUSED(module), PyObject *value)
{
    void **table = find_table();
    if (table == NULL || copy_default_allocator(table) < 0) {
        return NULL;
    }
    PyObject *capsule =
        value == Py_None ? PyCapsule_New(&handler, "mem_handler", NULL) : Py_NewRef(value);
    if (capsule == NULL) {
        return NULL;
    }
    PyObject *(*set_handler)(PyObject *);
    memcpy(&set_handler, &table[SLOT_SET_HANDLER], sizeof set_handler);
    PyObject *before = set_handler(capsule); /* NumPy keeps a reference of its own */
    Py_DECREF(capsule);
    return before;
}

PyMethodDef numpy_memory_functions[] = {
    {"_numpy_set_handler", core_set_handler, METH_O, set_handler_doc},
    {NULL, NULL, 0, NULL},
};
