/* shared_memory.h: multiprocessing's SharedMemory as an owner of host memory.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_SHARED_MEMORY_H
#define MD_SHARED_MEMORY_H

#include "array/view_items.h"

/* Is it a multiprocessing.shared_memory.SharedMemory?  1 or 0, or -1 with an exception.
 * Imports nothing. */
int shared_memory_check(PyObject *x);

/* What keeps its bytes mapped: the tuple (x, view), owned (+1), which drops the view before
 * x.  `*view`, of all bytes, is borrowed from it.  NULL with an exception; ValueError if x
 * is closed. */
PyObject *shared_memory_owner(const char *function, PyObject *x, const Py_buffer **view);

#endif /* MD_SHARED_MEMORY_H */
