/* schedule.h: the order in which a queue does the work of a few command buffers.
 *
 * Owns:      nothing: jobs and their programs belong to the caller.
 * Calls:     program.h, event.h, settings.h.
 * Threads:   the queue's worker alone.
 * Invariant: a pass runs after every earlier pass it depends on: through a tracked buffer that
 *            one of them writes, a fence, or an event between them.  Nothing else is promised.
 *            Apple's pages disagree on what a wait for an event holds back: all later work of
 *            the queue, or later passes of its own command buffer (SOFTMETAL_WAIT_SCOPE).
 */
#ifndef SOFT_SCHEDULE_H
#define SOFT_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "softmetal/gpu/program.h"
#include "softmetal/settings.h"

#define SOFT_JOB_ENDED_BY_EXIT (-1)

/* One command buffer. */
typedef struct soft_job {
    soft_program *program;
    int code; /* 0, a MTLCommandBufferError (its passes do nothing), or ENDED_BY_EXIT */
    size_t done_count; /* of its passes */
    uint64_t
        ended_ns; /* when its last commands were done, or it signalled; 0: it has had none */
    char *text;   /* owned: why a kernel was stopped; NULL: none was */
} soft_job;

typedef struct soft_schedule {
    soft_job *jobs; /* in the order of the queue */
    size_t count;
    soft_seed_kind order;
    bool waits_are_narrow; /* a wait holds back its own command buffer only */
    uint64_t *random;      /* state, changed by each choice */
} soft_schedule;

/* Run one pass.  False if none was left, or the process exits (a job's code says so).  Where
 * waits are narrow and all that is left waits, it returns after a moment: more may be committed
 * meanwhile. */
bool soft_schedule_step(soft_schedule *schedule);
bool soft_job_is_done(const soft_job *job);

#endif /* SOFT_SCHEDULE_H */
