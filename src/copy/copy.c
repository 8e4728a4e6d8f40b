/* copy.c: the doors of the copy engine, and copies that overlap.
 *
 * Owns:    the buffer that an overlapping copy goes through, for the time of the call.
 * Calls:   copy_plan.h for the shape of the work, and for the work.
 * Threads: see copy.h.
 */
#include "copy/copy.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "copy/copy_plan.h"

/* ---- source and destination that share memory ---- */

static bool
is_copy_onto_itself(const copy_plan *plan)
{
    for (int i = 0; i < plan->naxes; i++) {
        if (plan->axes[i].dst_step != plan->axes[i].src_step) {
            return false;
        }
    }
    return plan->dst == plan->src;
}

static bool
run_through_buffer(const copy_plan *plan)
{
    char *buffer = malloc((size_t)copy_plan_nbytes(plan));
    if (buffer == NULL) {
        return false;
    }
    copy_plan pack, spread;
    copy_plan_pack(plan, buffer, &pack, &spread);
    copy_threads_run(&pack);
    copy_threads_run(&spread);
    free(buffer);
    return true;
}

static bool
run_overlapping(const copy_plan *plan)
{
    if (plan->naxes == 0) {
        memmove(plan->dst, plan->src, (size_t)plan->run);
        return true;
    }
    return is_copy_onto_itself(plan) || run_through_buffer(plan);
}

bool
copy_strided(const strided_layout *dst, char *dst_base, const strided_layout *src,
             const char *src_base)
{
    copy_plan plan;
    if (!copy_plan_make(dst, dst_base, src, src_base, &plan)) {
        return true;
    }
    if (copy_plan_may_overlap(&plan)) {
        return run_overlapping(&plan);
    }
    copy_threads_run(&plan);
    return true;
}

void
copy_fill(const strided_layout *dst, char *dst_base, const char *item)
{
    copy_plan plan;
    if (copy_plan_make(dst, dst_base, NULL, item, &plan)) {
        copy_threads_run(&plan);
    }
}
