/* memory.c: what the user sees of the pool: memory_stats, empty_cache, set_memory_limit.
 *
 * Calls:   pool.h.
 * Threads: the GIL is held; released while buffers are given back to Metal.
 */
#include "module/module.h"

#include <sys/mman.h>
#ifdef __APPLE__
#include <mach/vm_inherit.h>
#endif

#include "metal/pool.h"
#include "python/args.h"
#include "python/storage_mode.h"
#include "streams/device.h"

static PyObject *
counts_as_dict(const pool_counts *counts)
{
    typedef unsigned long long number;
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "live", (number)counts->live_nbytes,
                         "cached", (number)counts->cached_nbytes, "peak",
                         (number)counts->peak_nbytes, "live_buffers",
                         (number)counts->live_count, "cached_buffers",
                         (number)counts->cached_count, "allocations",
                         (number)counts->allocations, "hits", (number)counts->hits);
}

static PyObject *
limit_as_object(uint64_t limit)
{
    return limit == POOL_NO_LIMIT ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(limit);
}

static int
add_modes(PyObject *dict, const pool_counts *modes)
{
    int result = 0;
    for (int mode = 0; mode < POOL_MODES && result == 0; mode++) {
        result = module_put(dict, storage_mode_name((bridge_storage)mode),
                            counts_as_dict(&modes[mode]));
    }
    return result;
}

PyDoc_STRVAR(
    memory_stats_doc,
    "memory_stats($module, /, *, device=None)\n--\n\n"
    "What the pool holds: the memory that this package allocated on a device.\n\n"
    "Parameters\n----------\n"
    "device : Device or str, optional\n    Default: the system's default device.\n\n"
    "Returns\n-------\ndict\n"
    "    'live', 'cached', 'peak' : int, bytes in use, bytes kept for reuse, and the most\n"
    "    bytes in use at once.  They count MTLBuffers, which are up to an eighth longer\n"
    "    than requested.\n"
    "    'live_buffers', 'cached_buffers' : int, how many MTLBuffers that is.\n"
    "    'allocations', 'hits' : int, allocations since the process began, and how many of\n"
    "    them found cached memory.\n"
    "    'limit' : int or None, of set_memory_limit().\n"
    "    'shared', 'managed', 'private' : dict, the same (without 'limit') of one storage\n"
    "    mode.\n\n"
    "Raises\n------\nMetalError\n    There is no Metal device.\n\n"
    "Foreign memory, wrapped without a copy, is not counted.");

ARGS_FUNCTION(core_memory_stats, module, "memory_stats", 0, 0, 0, "device")
{
    pool_counts modes[POOL_MODES], total;
    const device_record *device = device_convert(state_of_module(module), function, values[0]);
    if (device == NULL) {
        return NULL;
    }
    pool_read(device, modes, &total);
    PyObject *dict = counts_as_dict(&total);
    if (dict == NULL || module_put(dict, "limit", limit_as_object(pool_limit(device))) < 0 ||
        add_modes(dict, modes) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

PyDoc_STRVAR(
    empty_cache_doc,
    "empty_cache($module, /)\n--\n\n"
    "Return cached memory to Metal, on all devices.\n\n"
    "Returns\n-------\n"
    "int\n    The bytes that were returned.\n\n"
    "Memory in use stays.  The pool does the same by itself before it raises MemoryError.\n"
    "Threads: the GIL is released meanwhile.");

static PyObject *
core_empty_cache(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    uint64_t nbytes = WITHOUT_GIL(pool_empty(NULL));
    return PyLong_FromUnsignedLongLong(nbytes);
}

PyDoc_STRVAR(
    set_memory_limit_doc,
    "set_memory_limit($module, limit, /, *, device=None)\n--\n\n"
    "Limit the memory of allocations on a device, in use and cached together.\n\n"
    "Parameters\n----------\n"
    "limit : int or None\n"
    "    In bytes; None: no limit, the default.  0 refuses every allocation and caches\n"
    "    nothing.\n"
    "device : Device or str, optional\n    Default: the system's default device.\n\n"
    "Returns\n-------\n"
    "int or None\n    The previous limit.\n\n"
    "Raises\n------\nValueError\n    The limit is negative.\nMetalError\n    There is no Metal "
    "device.\n\n"
    "Memory in use stays, even beyond the limit; cached memory beyond it is returned to\n"
    "Metal.  An allocation that would exceed the limit raises MemoryError when the cache is\n"
    "empty.  Without a limit at most a quarter of recommended_max_working_set_size is cached.");

static int
convert_limit(PyObject *value, uint64_t *out)
{
    int64_t limit;
    *out = POOL_NO_LIMIT;
    if (value == Py_None) {
        return 0;
    }
    if (args_int64("set_memory_limit", "limit", value, &limit) < 0) {
        return -1;
    }
    if (limit < 0) {
        PyErr_Format(
            PyExc_ValueError,
            "set_memory_limit: limit (%lld bytes) is negative; pass None for no limit.",
            (long long)limit);
        return -1;
    }
    *out = (uint64_t)limit;
    return 0;
}

ARGS_FUNCTION(core_set_memory_limit, module, "set_memory_limit", 1, 1, 1, "limit", "device")
{
    uint64_t limit, before;
    if (convert_limit(values[0], &limit) < 0) {
        return NULL;
    }
    const device_record *device = device_convert(state_of_module(module), function, values[1]);
    if (device == NULL) {
        return NULL;
    }
    before = pool_limit(device);
    Py_BEGIN_ALLOW_THREADS
    pool_set_limit(device, limit);
    Py_END_ALLOW_THREADS
    return limit_as_object(before);
}

/* Best effort: with the pages in it a child of fork() only costs time. */
static PyObject *
core_keep_from_children(PyObject *Py_UNUSED(module), PyObject *pages)
{
    Py_buffer view;
    if (PyObject_GetBuffer(pages, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
#ifdef __APPLE__
    int result = minherit(view.buf, (size_t)view.len, VM_INHERIT_NONE);
#else
    int result = madvise(view.buf, (size_t)view.len, MADV_DONTFORK);
#endif
    PyBuffer_Release(&view);
    return PyBool_FromLong(result == 0);
}

PyMethodDef memory_functions[] = {
    {"memory_stats", MD_FASTCALL(core_memory_stats), memory_stats_doc},
    {"empty_cache", core_empty_cache, METH_NOARGS, empty_cache_doc},
    {"set_memory_limit", MD_FASTCALL(core_set_memory_limit), set_memory_limit_doc},
    {"_keep_from_children", core_keep_from_children, METH_O,
     PyDoc_STR("_keep_from_children($module, pages, /)\n--\n\n"
               "A child of fork() does not get these whole pages; False: the system refuses.")},
    {NULL, NULL, 0, NULL},
};
