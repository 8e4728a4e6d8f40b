/* numpy_memory.h: NumPy's large arrays in shared Metal buffers (NEP 49). */
#ifndef MD_NUMPY_MEMORY_H
#define MD_NUMPY_MEMORY_H

#include "python/state.h"

extern PyMethodDef numpy_memory_functions[];

#endif /* MD_NUMPY_MEMORY_H */
