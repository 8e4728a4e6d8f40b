/* copy_nest.h: does a plan, on the calling thread. */
#ifndef MD_COPY_NEST_H
#define MD_COPY_NEST_H

#include "copy/copy_plan.h"

/* Copy.  Source and destination do not overlap. */
void copy_nest_run(const copy_plan *plan);

#endif /* MD_COPY_NEST_H */
