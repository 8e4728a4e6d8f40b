/* copy_threads.h: does a plan, on several threads where that helps.
 *
 * Owns:    one number, the process's setting (copy_set_threads).
 * Threads: helpers are started for one copy and joined before it returns: nothing is left to
 *          stop at exit, nothing for a fork to inherit, and no lock exists.
 */
#ifndef MD_COPY_THREADS_H
#define MD_COPY_THREADS_H

#include "copy/copy_plan.h"

#define COPY_MAX_THREADS 16

/* How many threads a large copy may use, its caller's included: 1 to COPY_MAX_THREADS; 0 is the
 * default, the number of processors but at most 4.  One setting for the process. */
void copy_set_threads(int count);
int copy_get_threads(void);

/* Copy.  Source and destination do not overlap.  A thread that cannot be started is done
 * without. */
void copy_threads_run(const copy_plan *plan);

#endif /* MD_COPY_THREADS_H */
