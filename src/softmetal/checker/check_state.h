/* check_state.h: one checked launch: what the files of the checker share.
 *
 *     check.c            the calls of the run time; what an access is part of
 *       │  check_series.c    accesses that are looked at together
 *       │  check_memory.c    which memory is the kernel's: views, threadgroup memory
 *       │  check_races.c     an access against what the shadow remembers
 *       │  check_outputs.c   what a launch wrote, and left unwritten
 *       │  check_textures.c  which pixels are asked for, and are there
 *       │  check_given.c     what an argument was given against its parameter
 *       │  check_waiting.c   who waits where, what that orders, and who does not come
 *       │  check_count.h     instead of these: accesses are counted
 *       ▼
 *     check_state.h      the launch; who is where; what was found; the end
 *       │  finding.h         what was found, as values and as a sentence
 *       │  recorder.h        who is told
 *       │  check_order.h     was that before this?
 *       │  check_shadow.h    who wrote, who read
 *       │  fresh.h           which bytes nobody has written
 *       ▼  check_guard.h     faults of the processor, time that runs out
 *     checked_launch.h
 *
 * Owns:    as each field says.
 * Calls:   `abandon` of the launch.
 * Threads: the OS thread that runs the launch.
 */
#ifndef SOFT_CHECK_STATE_H
#define SOFT_CHECK_STATE_H

#include "softmetal/checker/check_guard.h"
#include "softmetal/checker/check_order.h"
#include "softmetal/checker/check_shadow.h"
#include "softmetal/checker/checked_launch.h"
#include "softmetal/checker/finding.h"
#include "softmetal/checker/fresh.h"
#include "softmetal/fiber.h"

#define SOFT_MOST_FINDINGS 64

typedef struct soft_findings {
    soft_finding list[SOFT_MOST_FINDINGS];
    size_t count;
    bool has_more;
} soft_findings;

#define SOFT_MOST_RANGES (SOFT_MOST_BUFFERS + SOFT_MOST_PLACES) /* beside resources */
#define SOFT_MOST_SERIES 8

/* Bytes that the kernel may touch: a buffer's view, or a piece of threadgroup memory. */
typedef struct soft_range {
    uintptr_t base;
    size_t nbytes;
    soft_shadow *shadow; /* views on the same bytes share it */
    int memory;          /* check_order.h: SOFT_DEVICE_MEMORY, ... */
    bool is_variable;    /* of the kernel, not an argument */
    bool is_writable;
    soft_fresh *fresh;       /* borrowed; NULL: all was written before the launch */
    uint32_t number;         /* index of the argument, or the translator's of the variable */
    uint32_t counted;        /* check_count.c's number of it */
    const soft_given *given; /* NULL: what its parameter says, or it is told */
} soft_range;

/* Accesses by one instruction: thread t's, if it makes one, is at `low` + `step` * (t - `first`'s).
 * The bytes are the kernel's; the image notes who made one, and they are judged later. */
typedef struct soft_series {
    soft_site *site;
    const soft_range *range;
    uintptr_t low;
    size_t nbytes, step; /* of one access, and from thread to thread: never less */
    soft_u32 how, count; /* of threads */
    soft_mark first;
    soft_u8 *seen; /* by index: has it made one?  Part of the check's `seen` */
} soft_series;

/* A thread writes what another has written by the same instruction: a race, unless it is the same
 * value.  That shows at its next access. */
typedef struct soft_rewrite {
    const soft_range *range; /* NULL: there is none */
    uintptr_t at;
    size_t nbytes;
    soft_mark earlier, now;
    unsigned char bytes[16]; /* as the other left them */
} soft_rewrite;

/* The last writes of pixels that are read, too, by where the pixel lies: of two that fall on one place the later. */
#define SOFT_MOST_PIXELS 1024
typedef struct soft_pixel_write {
    uintptr_t at;
    uint32_t thread, era; /* else it is forgotten */
    const void *site;
} soft_pixel_write;

#define SOFT_UNWRITTEN_BITS ((size_t)2 * SOFT_MOST_THREADGROUP_NBYTES)

typedef struct soft_check soft_check;

/* The observers of an event, in the order in which they are told: check.c.  A range is one of check->ranges, and a
 * site is where the threads waited. */
typedef void (*soft_told[2 + 1])(soft_check *check); /* the last is NULL */
typedef struct soft_observers {
    bool (*begin)(soft_check *check); /* false: no memory */
    soft_told group;                  /* one begins, and the one before is done */
    void (*place[2])(soft_check *check, soft_range *range);
    /* check->thread runs, then those after it */
    void (*turn)(soft_check *check, soft_u32 count);
    /* not of what the instruction touched last, which check_series.c alone asks about */
    void (*access[3])(soft_check *check, const soft_range *range, uintptr_t at, size_t nbytes,
                      soft_u32 how, soft_site *site);
    soft_told fence;
    void (*barrier[2])(soft_check *check, const void *site); /* it opens */
    void (*meeting[2])(soft_check *check, soft_u32 simdgroup, soft_u32 lanes, const void *site);
    void (*returned)(soft_check *check); /* the threads that run, or they are stopped */
    soft_told end;                       /* all threadgroups are done */
    soft_told close;                     /* the launch is done, or was stopped */
} soft_observers;

struct soft_check {
    soft_check_launch launch; /* borrowed */
    const soft_observers *observers;
    uintptr_t image_base;
    /* where the running thread may do as it likes */
    uintptr_t stack_low;
    size_t stack_nbytes;
    const soft_thread *thread; /* that runs, or the first of a row; ... */
    soft_watch *watch;         /* ... its index is here.  Borrowed, and taken: nobody else's */
    soft_u32 row_end;          /* the index after the last that follows on this stack */
    soft_u32 era;              /* what a site remembers of another is stale */
    soft_series series[SOFT_MOST_SERIES];
    soft_u8 seen[SOFT_MOST_SERIES][SOFT_MOST_THREADS];
    int series_count;   /* of those whose site is not NULL */
    soft_range *ranges; /* owned */
    int view_count, range_count;
    soft_shadow *shadows; /* owned, and each; [0]: threadgroup memory */
    int shadow_count;
    uintptr_t state_low;
    size_t state_nbytes;
    soft_order order; /* owned */
    soft_rewrite rewrite;
    soft_findings findings;
    const soft_texture *texture;     /* the last that was asked for, and is the launch's: ... */
    const soft_range *texture_range; /* ... its bytes */
    soft_pixel_write pixels[SOFT_MOST_PIXELS];
    uint32_t pixel_era;
    /* Where this threadgroup has read its own memory unwritten: a bit for each read's first byte, by its distance
     * to the shadow's base.  What is written there later is no more than a race. */
    uint64_t unwritten[SOFT_UNWRITTEN_BITS / 64];
    bool has_unwritten;
    struct soft_count *count; /* owned; NULL: the launch is checked, and not counted */
    soft_guard guard;
    bool is_overdue;
    /* the threadgroup's threads */
    soft_u32 thread_count;
    soft_u32 wait_flags;                  /* that all who wait have in common */
    const void *sites[SOFT_MOST_THREADS]; /* where each waits; NULL: it does not */
    bool has_returned[SOFT_MOST_THREADS];
};

/* The lanes that a SIMD-group has. */
SOFT_ON_FIBER static inline soft_u32
soft_all_lanes(const soft_check *check, soft_u32 simdgroup)
{
    soft_u32 count = check->thread_count - simdgroup * SOFT_SIMD_WIDTH;
    return count >= SOFT_SIMD_WIDTH ? ~0u : (1u << count) - 1;
}

static inline uint32_t
soft_check_offset(const soft_check *check, const void *site)
{
    return (uint32_t)((uintptr_t)site - check->image_base);
}

/* A thread of this threadgroup at `site`; what made a mark. */
soft_at soft_at_thread(const soft_check *check, soft_u32 index, const void *site);
soft_at soft_at_mark(const soft_check *check, soft_mark mark);

/* Leave the kernel for good; call it after a finding is kept. */
_Noreturn void soft_check_stop(soft_check *check);
/* The same with a finding that says so. */
_Noreturn void soft_check_stop_without_memory(soft_check *check);
/* The same with one of the running thread. */
_Noreturn void soft_check_stop_at(soft_check *check, soft_finding found, const void *site);
_Noreturn void soft_check_stop_overdue(soft_check *check, const void *site);

/* ---- check_waiting.c: who waits where, what that orders, and who does not come ---- */

/* Where all wait for a barrier; or it does not return. */
const void *soft_waiting_site(soft_check *check);
/* As soft_check_all_met. */
void soft_waiting_lanes(soft_check *check, soft_u32 simdgroup, soft_u32 lanes, soft_u32 others,
                        const void *const *sites);
/* What is ordered from now on. */
void soft_waiting_barrier(soft_check *check, const void *site);
void soft_waiting_meeting(soft_check *check, soft_u32 simdgroup, soft_u32 lanes,
                          const void *site);
void soft_waiting_fence(soft_check *check);

/* ---- check_memory.c: which memory is the kernel's: its views, its threadgroup memory ---- */

/* False: no memory. */
bool soft_memory_open(soft_check *check);
void soft_memory_close(soft_check *check);
/* What an access is part of; NULL: of memory that all may read.  False: it may not be made. */
bool soft_memory_find(const soft_check *check, uintptr_t at, size_t nbytes, soft_u32 how,
                      const soft_range **found);
/* Where the kernel's memory has an address within [low, low + nbytes): `memory` and `offset`.  False: nowhere. */
bool soft_memory_find_address(const soft_check *check, uint64_t low, uint64_t nbytes,
                              soft_finding *found);
/* Return why such an access is refused. */
soft_finding soft_memory_refuse(const soft_check *check, uintptr_t at, size_t nbytes,
                                soft_u32 how);
/* Return the same for an access at an address that is no multiple of `alignment`. */
soft_finding soft_memory_refuse_misaligned(const soft_check *check, uintptr_t at,
                                           size_t alignment);

/* What a finding says of a range. */
static inline soft_found_memory
soft_range_found(const soft_range *range)
{
    return (soft_found_memory){
        .is_known = true,
        .is_device = range->memory != SOFT_THREADGROUP_MEMORY,
        .is_variable = range->is_variable,
        .number = range->number,
        .nbytes = range->nbytes,
    };
}

/* ---- check_races.c: an access against what the shadow remembers ---- */

/* One access, nbytes > 0; the range's shadow has cells. */
void soft_race_touch(soft_check *check, const soft_range *range, uintptr_t at, size_t nbytes,
                     soft_u32 how, soft_mark now);
/* As many as a block has grains, from its first on: `now` is the first one's, and each of the others
 * was made by the thread after.  False, and nothing is done: the block is split, or the accesses
 * are not of the size of its grains. */
bool soft_race_touch_block(soft_check *check, const soft_range *range, uintptr_t at,
                           size_t nbytes, soft_u32 how, soft_mark now);
/* May `count` writes, `step` bytes apart, be judged later?  Not if one may only repeat what another
 * thread wrote: that shows in the bytes before it. */
bool soft_race_may_wait(const soft_check *check, const soft_range *range, uintptr_t at,
                        size_t nbytes, size_t step, size_t count, soft_mark now);
void soft_race_judge(soft_check *check);
/* All threads of a threadgroup have returned: which reads of unwritten bytes were no race with a
 * write that came later? */
void soft_race_end_group(soft_check *check);

/* ---- check_outputs.c: what a launch left unwritten ---- */

/* The launch has come to its end: what it wrote is not fresh any more.  A finding for each output that it
 * was to write, and left in part as it was. */
void soft_outputs_end(soft_check *check);

/* Before anything else happens: judge check->rewrite, if there is one. */
static inline void
soft_race_settle(soft_check *check)
{
    if (__builtin_expect(check->rewrite.range != NULL, 0)) {
        soft_race_judge(check);
    }
}

/* ---- check_given.c: what an argument was given against its parameter ---- */

/* Return what is known about a launch's view, or NULL. */
const soft_given *soft_given_find(const soft_launch *launch, uint32_t index);
/* An access: told once, unless it is meant. */
void soft_given_access(soft_check *check, const soft_range *range, uintptr_t at, size_t nbytes,
                       soft_u32 how, soft_site *site);

/* Has each access to be asked for? */
static inline bool
soft_given_has_gaps(const soft_range *range)
{
    return range->given != NULL && range->given->axes > 0;
}

/* ---- check_textures.c: pixels that a kernel asks for ---- */

/* The running thread has a texture: does not return where it is none of the launch's. */
void soft_textures_know(soft_check *check, const soft_texture *texture, soft_u32 how,
                        const void *site);

/* The running thread asks for a pixel (x, y, z, level); `place` 0: there is none. */
void soft_textures_touch(soft_check *check, const soft_texture *texture, uintptr_t place,
                         const soft_u32 coordinates[4], soft_u32 how, const void *site);
/* All see what was written so far. */
void soft_textures_settle(soft_check *check);

/* ---- check_series.c: accesses that are looked at together ---- */

/* An access of the running thread by an instruction that did not touch the range last. */
void soft_series_access(soft_check *check, const soft_range *range, uintptr_t at, size_t nbytes,
                        soft_u32 how, soft_site *site);
/* By one that did; the range has cells. */
void soft_series_touch(soft_check *check, const soft_range *range, uintptr_t at, size_t nbytes,
                       soft_u32 how, soft_site *site);
/* Judge all series: before time grows, before a report, at the end of a row. */
void soft_series_end(soft_check *check);

/* ---- what was found: of the same lines only the first; kept until the end of the launch and then said ---- */

/* Has one at these two instructions been found?  Then the launch knows it, and it has come again. */
bool soft_findings_has(soft_findings *findings, uint32_t offset, uint32_t other);
/* Keep a finding; NULL when there are enough. */
soft_finding *soft_findings_add(soft_findings *findings, const soft_finding *finding);
/* Say all of them, and tell the recorder; the first one's text goes to `error`.  True: the launch
 * is to fail for one.  No lock is held: Python is asked. */
bool soft_findings_say(const soft_findings *findings, const soft_check_launch *launch,
                       char *error, size_t nbytes);

#endif /* SOFT_CHECK_STATE_H */
