/* module.h: the files of this folder, as module.c puts them together.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_MODULE_H
#define MD_MODULE_H

#include "python/state.h"

/* capture.c: Metal's capture. */
extern PyMethodDef capture_functions[];
/* wired.c: buffers that stay wired. */
extern PyMethodDef residency_functions[];
/* explain.c: what explain() needs to know of a tensor, as a dict. */
extern PyMethodDef explain_functions[];
/* memory.c: what the user sees of the pool. */
extern PyMethodDef memory_functions[];
/* numpy_memory.c: NumPy's large arrays in shared Metal buffers (NEP 49). */
extern PyMethodDef numpy_memory_functions[];
/* shares_memory.c */
extern PyMethodDef shares_memory_functions[];
/* threads.c: how many threads a large copy on the CPU may use. */
extern PyMethodDef threads_functions[];
/* timeline_records.c: what a timeline recorded. */
extern PyMethodDef timeline_functions[];
/* work_facts.c: what reprs and pictures say of GPU work and of who holds a buffer. */
extern PyMethodDef work_facts_functions[];

/* c_api.c: puts _C_API, the table of metal_dlpack/include/metal_dlpack.h, into the module.  0,
 * or -1 with an exception. */
int c_api_add_capsule(PyObject *module);

/* What a floor above adds to the module, and names itself before any module is made. */
typedef struct module_part {
    PyMethodDef *functions;       /* NULL: none */
    int (*add)(PyObject *module); /* at the end; 0, or -1 with an exception; NULL: nothing */
    struct module_part *next;
} module_part;

extern module_part *module_parts; /* module.c; the first; NULL on a Mac */

/* threads.c: reads METAL_DLPACK_NUM_THREADS, once a process.  -1: its RuntimeWarning was made
 * an exception. */
int threads_read_variable(void);

/* Put `value`, which is stolen, into a dict.  0, or -1 with an exception, which NULL has set. */
static inline int
module_put(PyObject *dict, const char *name, PyObject *value)
{
    int result = value == NULL ? -1 : PyDict_SetItemString(dict, name, value);
    Py_XDECREF(value);
    return result;
}

#endif /* MD_MODULE_H */
