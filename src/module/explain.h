/* explain.h: what explain() needs to know of a tensor, as a dict. */
#ifndef MD_EXPLAIN_H
#define MD_EXPLAIN_H

#include "python/state.h"

extern PyMethodDef explain_functions[];

#endif /* MD_EXPLAIN_H */
