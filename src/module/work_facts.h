/* work_facts.h: what reprs and pictures say of GPU work and of who holds a buffer. */
#ifndef MD_WORK_FACTS_H
#define MD_WORK_FACTS_H

#include "python/state.h"

extern PyMethodDef work_facts_functions[];

#endif /* MD_WORK_FACTS_H */
