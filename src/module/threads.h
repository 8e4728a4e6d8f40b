/* threads.h: how many threads a large copy on the CPU may use: METAL_DLPACK_NUM_THREADS and
 * two functions.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_THREADS_H
#define MD_THREADS_H

#include "python/state.h"

/* Read the variable, once a process.  -1: its RuntimeWarning was made an exception. */
int threads_read_variable(void);

extern PyMethodDef threads_functions[];

#endif /* MD_THREADS_H */
