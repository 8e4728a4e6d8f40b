/* check.h: the checker of kernels, as the run time calls it.
 *
 * A checked launch runs on one OS thread, one threadgroup after the other, each thread on a stack
 * that can be left for good.  The order of the calls:
 *
 *     soft_check_begin
 *         soft_check_group                       a threadgroup begins
 *             soft_check_place                   memory is given to a threadgroup variable
 *             soft_check_switch                  another thread of it runs from now on
 *             soft_check_wait, _open             one comes to a barrier; the barrier opens
 *             soft_check_exchange                lanes leave a SIMD-group function together
 *             soft_check_return                  the running thread's kernel function returned
 *     soft_check_end
 *
 * Owns:    the shadow of the launch's memory and the reports, from begin to end.
 * Calls:   checked_launch.h.
 * Threads: all calls of a launch from the OS thread that runs it; launches do not know each other.
 */
#ifndef SOFT_CHECK_H
#define SOFT_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#include "softmetal/checker/checked_launch.h"
#include "softmetal/shim/softmetal_kernel.h"

/* Check what this OS thread runs until soft_check_end.  False: there is no memory. */
bool soft_check_begin(const soft_check_launch *launch);

/* A threadgroup begins.  `memory`: where soft_check_place will place; `state`: what else of the run
 * time the kernel reads (soft_thread, the SIMD-groups' slots). */
void soft_check_group(const soft_u32 position[3], const void *memory, size_t memory_nbytes,
                      const void *state, size_t state_nbytes);

/* A threadgroup variable (`number`) or argument (`index`) lies here, in this threadgroup; there are
 * at most SOFT_MOST_PLACES.  Leave 16 bytes or more after each, so that an overrun is none's. */
void soft_check_place(const void *address, size_t nbytes, soft_u32 number, bool is_argument);

/* `thread` runs from now on, and then those after it, `count` in all, before the next call: on the
 * stack from `low` to `high`, where the frames of the kernel begin (__builtin_frame_address(0) of
 * the function that calls run_rows). */
void soft_check_switch(const soft_thread *thread, soft_u32 count, const void *low,
                       const void *high);

/* The running thread is about to be switched from: stops the launch if its stack ends. */
void soft_check_room(const void *site);
/* The running thread comes to a threadgroup_barrier.  (Call it before another thread runs.) */
void soft_check_wait(soft_u32 mem_flags, const void *site);
/* Every thread that has not returned waits, and the barrier opens.  Reports divergence, and then
 * does not return (abandon). */
void soft_check_open(void);
/* These lanes (bit i: lane i) of a SIMD-group go on from a SIMD-group function or barrier at `site`. */
void soft_check_exchange(soft_u32 simdgroup, soft_u32 lanes, const void *site);
/* Before that, where all lanes must come: `lanes` did, and wait at their `sites`; those of `others`
 * wait at theirs, for lanes too.  Reports one that did not come, and then does not return. */
void soft_check_all_met(soft_u32 simdgroup, soft_u32 lanes, soft_u32 others,
                        const void *const *sites);
/* The running thread, or the last of those that follow it, has returned from the kernel function. */
void soft_check_return(void);

/* What soft_runtime has for checked images. */
void soft_check_access(const void *address, soft_u64 nbytes, soft_u32 how, soft_site *site);
void soft_check_count(const void *address, soft_counted *counted, const void *site);
/* A texture is about to be looked into, by `how`.  Does not return where it is none of the launch's. */
void soft_check_texture(const soft_texture *texture, soft_u32 how, const void *site);
/* A pixel (x, y, z, level) of it is about to be touched; `place` NULL: there is none. */
void soft_check_pixel(const soft_texture *texture, const void *place,
                      const soft_u32 coordinates[4], soft_u32 how, const void *site);
void soft_check_texture_fence(const soft_texture *texture);
_Noreturn void soft_check_stop_for(soft_u32 why, soft_u64 first, soft_u64 second,
                                   const void *site);

/* The end, after the last threadgroup (`is_done`) or after abandon.  False: the launch was stopped,
 * or a race was found; `error` has the first report. */
bool soft_check_end(bool is_done, char *error, size_t nbytes);

#endif /* SOFT_CHECK_H */
