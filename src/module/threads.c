/* threads.c: how many threads a large copy on the CPU may use: METAL_DLPACK_NUM_THREADS and
 * two functions.
 *
 * Calls:   copy.h, which has the number.
 */
#include "module/module.h"

#include <stdlib.h>

#include "copy/copy.h"
#include "python/args.h"

#define THREADS_VARIABLE "METAL_DLPACK_NUM_THREADS"

int
threads_read_variable(void)
{
    static int is_read; /* atomic */
    const char *value = getenv(THREADS_VARIABLE);
    if (__atomic_exchange_n(&is_read, 1, __ATOMIC_ACQ_REL) || value == NULL ||
        value[0] == '\0') {
        return 0;
    }
    char *end;
    long count = strtol(value, &end, 10);
    if (*end == '\0' && count >= 1 && count <= COPY_MAX_THREADS) {
        copy_set_threads((int)count);
        return 0;
    }
    return PyErr_WarnFormat(PyExc_RuntimeWarning, 2,
                            THREADS_VARIABLE
                            " ('%.100s') is not a number from 1 to %d; the default is used.",
                            value, COPY_MAX_THREADS);
}

PyDoc_STRVAR(get_num_threads_doc,
             "get_num_threads($module, /)\n--\n\n"
             "How many threads a large copy on the CPU may use, the caller's own included.\n\n"
             "Returns\n-------\nint\n    From 1 to 16.");

static PyObject *
core_get_num_threads(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyLong_FromLong(copy_get_threads());
}

PyDoc_STRVAR(
    set_num_threads_doc,
    "set_num_threads($module, count, /)\n--\n\n"
    "Let large copies on the CPU use up to `count` threads, the caller's own included.\n\n"
    "The default is METAL_DLPACK_NUM_THREADS, read at the import, else the number of\n"
    "processors but at most 4.  A copy starts a thread for each 2 MiB (16 MiB if the items\n"
    "are contiguous), and joins them before it returns: no thread stays alive in between,\n"
    "so a forked child copies as its parent does.\n\n"
    "Parameters\n----------\n"
    "count : int or None\n    From 1 to 16; None for the number of processors but at most "
    "4.\n\n"
    "Raises\n------\n"
    "TypeError\n    `count` is not an integer.\n"
    "ValueError\n    `count` is out of range.\n\n"
    "One setting for the process, from any thread, at any time.");

static PyObject *
core_set_num_threads(PyObject *Py_UNUSED(module), PyObject *value)
{
    int64_t count = 0;
    if (value != Py_None) {
        if (args_int64("set_num_threads", "count", value, &count) < 0) {
            return NULL;
        }
        if (count < 1 || count > COPY_MAX_THREADS) {
            return PyErr_Format(PyExc_ValueError,
                                "set_num_threads: count (%lld) is not within 1 to %d.",
                                (long long)count, COPY_MAX_THREADS);
        }
    }
    copy_set_threads((int)count);
    Py_RETURN_NONE;
}

PyMethodDef threads_functions[] = {
    {"get_num_threads", core_get_num_threads, METH_NOARGS, get_num_threads_doc},
    {"set_num_threads", core_set_num_threads, METH_O, set_num_threads_doc},
    {NULL, NULL, 0, NULL},
};
