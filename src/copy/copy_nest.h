/* copy_nest.h: does a plan, on the calling thread. */
#ifndef MD_COPY_NEST_H
#define MD_COPY_NEST_H

#include "copy/copy_plan.h"

/* Copy; `nbytes` is the size of the whole copy, of which `plan` may be a part.  No overlap. */
void copy_nest_run(const copy_plan *plan, int64_t nbytes);

#endif /* MD_COPY_NEST_H */
