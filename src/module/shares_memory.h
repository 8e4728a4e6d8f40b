/* shares_memory.h: the module's function shares_memory. */
#ifndef MD_SHARES_MEMORY_H
#define MD_SHARES_MEMORY_H

#include "python/state.h"

extern PyMethodDef shares_memory_functions[];

#endif /* MD_SHARES_MEMORY_H */
