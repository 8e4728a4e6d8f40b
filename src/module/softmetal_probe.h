/* softmetal_probe.h: counts and reports of the software Metal, for tests; nothing on a Mac. */
#ifndef MD_SOFTMETAL_PROBE_H
#define MD_SOFTMETAL_PROBE_H

#include "python/state.h"

extern PyMethodDef softmetal_probe_functions[];

#endif /* MD_SOFTMETAL_PROBE_H */
