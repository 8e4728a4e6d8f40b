/* library_type.h: the Python type `Library`, and kernel().
 *
 * Threads: the GIL is held.
 */
#ifndef MD_LIBRARY_TYPE_H
#define MD_LIBRARY_TYPE_H

#include "python/state.h"

/* kernel() of the module. */
extern PyMethodDef kernel_functions[];

#endif /* MD_LIBRARY_TYPE_H */
