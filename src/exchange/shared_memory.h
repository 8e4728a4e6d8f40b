/* shared_memory.h: multiprocessing's SharedMemory as an owner of host memory.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_SHARED_MEMORY_H
#define MD_SHARED_MEMORY_H

#include "python/state.h"

/* Is it a multiprocessing.shared_memory.SharedMemory?  1 or 0, or -1 with an exception.
 * Imports nothing. */
int shared_memory_check(PyObject *x);

/* A view of all its bytes (`*view`, borrowed from the result) and what keeps them mapped: a
 * new reference to (x, view), which lets go of the view before x, whose own end closes the
 * mapping.  NULL with an exception; ValueError if it is closed. */
PyObject *shared_memory_owner(const char *function, PyObject *x, PyObject **view);

#endif /* MD_SHARED_MEMORY_H */
