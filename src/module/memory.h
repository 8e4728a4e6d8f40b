/* memory.h: what the user sees of the pool: memory_stats, empty_cache, set_memory_limit. */
#ifndef MD_MEMORY_H
#define MD_MEMORY_H

#include "python/state.h"

extern PyMethodDef memory_functions[];

#endif /* MD_MEMORY_H */
