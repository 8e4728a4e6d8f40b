/* threadgroup.c: see threadgroup.h.
 *
 * Owns:      nothing.
 * Threads:   `running` is the OS thread's.
 * Invariant: a fiber belongs to its soft_threadgroup, and moves with it from one OS thread to
 *            another between two calls of soft_threadgroup_run: what runs on a fiber across a
 *            switch reads nothing that is the OS thread's.
 */
#include "softmetal/kernels/threadgroup.h"

#include <stdio.h>

#include "softmetal/checker/check.h"
#include "softmetal/checker/late.h"
#include "softmetal/kernels/texture.h"

static __thread soft_threadgroup *running;

/* ---- stopping ---- */

SOFT_ON_FIBER static void
set_text(soft_run *run, const char *text)
{
    int none = 0;
    if (__atomic_compare_exchange_n(&run->is_stopped, &none, 1, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED)) {
        snprintf(run->text, sizeof run->text, "%s", text);
        __atomic_store_n(&run->is_stopped, 2, __ATOMIC_RELEASE);
    }
}

/* To the OS thread's own stack, with whatever runs or waits on fibers left for good. */
SOFT_ON_FIBER static void __attribute__((noreturn))
leave_for_good(soft_threadgroup *group)
{
    group->free = NULL;
    group->current = NULL;
    soft_fiber_switch(&(void *){NULL}, group->host);
    __builtin_unreachable();
}

/* The first text stays. */
SOFT_ON_FIBER static void __attribute__((noreturn))
stop_run(const char *text)
{
    soft_threadgroup *group = running;
    set_text(group->run, text);
    leave_for_good(group);
}

SOFT_ON_FIBER void
soft_threadgroup_abandon(void)
{
    stop_run("The kernel was stopped."); /* the checker has a text of its own */
}

/* In a handler of a signal. */
static uintptr_t
stack_low(void)
{
    bool is_on_fiber = running != NULL && running->current != NULL;
    return is_on_fiber ? (uintptr_t)running->current->stack : 0;
}

/* On the guard's stack: the processor has complained, and nobody checks. */
SOFT_ON_FIBER static void
leave_kernel(void)
{
    char text[SOFT_STOP_TEXT_NBYTES];
    soft_fault_describe(&running->guard, running->run->image, running->run->launch, text);
    stop_run(text);
}

/* ---- threadgroups ---- */

/* The next one whose turn it is, is the first that can run. */
SOFT_ON_FIBER static void
begin_turn(soft_threadgroup *group)
{
    group->simdgroup = 0;
    group->lane = SOFT_SIMD_WIDTH - 1;
}

/* The next threadgroup.  False: there is none, or the run is stopped. */
SOFT_ON_FIBER static bool
next_group(soft_threadgroup *group)
{
    soft_run *run = group->run;
    if (group->next_group == group->end_group || soft_run_is_stopped(run)) {
        return false;
    }
    uint64_t number = soft_shuffle_group(&run->shuffle, group->next_group);
    group->next_group += 1;
    if (group->guard.progress != NULL) {
        soft_progress_step(group->guard.progress);
    }
    group->random = run->shuffle.seed ^ number; /* the choices are no matter of the OS thread */
    soft_placement_begin(&group->placement, run->launch, number);
    soft_threadgroup_memory_clear(&group->memory);
    if (group->run->is_checked) {
        soft_check_group(group->placement.position, group->memory.bytes,
                         sizeof group->memory.bytes, group, offsetof(soft_threadgroup, memory));
    }
    return true;
}

/* The next threadgroup, with no thread begun.  False: there is none. */
SOFT_ON_FIBER static bool
begin_group(soft_threadgroup *group)
{
    if (!next_group(group)) {
        return false;
    }
    begin_turn(group);
    group->waiting = 0;
    soft_u32 count = (group->placement.thread_count + SOFT_SIMD_WIDTH - 1) / SOFT_SIMD_WIDTH;
    group->runnable = UINT32_MAX >> (SOFT_MOST_SIMDGROUPS - count);
    for (soft_u32 index = 0; index < count; index++) {
        soft_u32 left = group->placement.thread_count - index * SOFT_SIMD_WIDTH;
        soft_simdgroup_begin(&group->simdgroups[index],
                             left >= SOFT_SIMD_WIDTH ? UINT32_MAX : (1u << left) - 1);
    }
    return true;
}

SOFT_ON_FIBER static void
open_barrier(soft_threadgroup *group)
{
    if (soft_run_is_stopped(group->run)) {
        leave_for_good(group);
    }
    if (group->run->is_checked) {
        soft_check_open();
    }
    for (soft_u32 left = group->waiting; left != 0; left &= left - 1) {
        soft_simdgroup *simdgroup = &group->simdgroups[__builtin_ctz(left)];
        simdgroup->ready = simdgroup->at_barrier;
        simdgroup->at_barrier = 0;
    }
    group->runnable = group->waiting;
    group->waiting = 0;
    begin_turn(group);
}

/* ---- threads ---- */

/* Return the bit of a mask whose turn it is after `last`. */
SOFT_ON_FIBER static soft_u32
next_bit(soft_threadgroup *group, soft_u32 mask, soft_u32 last)
{
    if (__builtin_expect(group->run->shuffle.order != SOFT_ORDER_FIRST, 0)) {
        return soft_shuffle_bit(&group->run->shuffle, &group->random, mask);
    }
    soft_u32 later = mask & ~UINT32_C(1) << last;
    return (soft_u32)__builtin_ctz(later != 0 ? later : mask);
}

/* Whose turn it is: then it is group->simdgroup and ->lane, and no longer ready.  False: all
 * threads of the threadgroup have returned. */
SOFT_ON_FIBER static bool
choose_thread(soft_threadgroup *group)
{
    if (group->runnable == 0) {
        if (group->waiting == 0) {
            return false;
        }
        open_barrier(group);
    }
    soft_u32 index = group->simdgroup;
    if ((group->runnable >> index & 1) == 0 || group->run->shuffle.order != SOFT_ORDER_FIRST) {
        index = next_bit(group, group->runnable, index);
    }
    soft_simdgroup *simdgroup = &group->simdgroups[index];
    if (simdgroup->ready == 0) {
        soft_simdgroup_meet(simdgroup);
        if (group->run->is_checked) {
            if ((simdgroup->met & simdgroup->for_all) != 0) {
                soft_check_all_met(index, simdgroup->met, simdgroup->meeting, simdgroup->sites);
            }
            soft_check_exchange(index, simdgroup->met,
                                simdgroup->sites[__builtin_ctz(simdgroup->met)]);
        }
    }
    group->lane = next_bit(group, simdgroup->ready,
                           index == group->simdgroup ? group->lane : SOFT_SIMD_WIDTH - 1);
    group->simdgroup = index;
    simdgroup->ready &= ~(UINT32_C(1) << group->lane);
    return true;
}

SOFT_ON_FIBER static void
begin_thread(soft_threadgroup *group, soft_fiber *fiber)
{
    soft_u32 index = group->simdgroup, lane = group->lane;
    group->simdgroups[index].begun |= UINT32_C(1) << lane;
    group->fiber_of[index][lane] = fiber;
    soft_placement_of(&group->placement, index * SOFT_SIMD_WIDTH + lane, &fiber->thread);
}

/* The running thread waits, or has returned: what is left of its SIMD-group? */
SOFT_ON_FIBER static void
count_out(soft_threadgroup *group)
{
    const soft_simdgroup *simdgroup = &group->simdgroups[group->simdgroup];
    if ((simdgroup->ready | simdgroup->meeting) == 0) {
        group->runnable &= ~(UINT32_C(1) << group->simdgroup);
    }
}

static soft_fiber_entry run_fiber;

/* One that has no thread, or NULL. */
SOFT_ON_FIBER static soft_fiber *
take_fiber(soft_threadgroup *group)
{
    soft_fiber *fiber = group->free;
    if (fiber != NULL) {
        group->free = fiber->next;
        return fiber;
    }
    unsigned number = group->fiber_count;
    fiber = &group->fibers[number];
    if (!soft_fiber_make(fiber)) {
        return NULL;
    }
    soft_fiber_prepare(fiber, number, run_fiber, group);
    group->fiber_count += 1;
    return fiber;
}

SOFT_ON_FIBER static bool
has_begun(const soft_threadgroup *group)
{
    return (group->simdgroups[group->simdgroup].begun >> group->lane & 1) != 0;
}

/* The stack of the thread whose turn it is, which waits.  The next one's is fetched meanwhile. */
SOFT_ON_FIBER static void *
stack_of_chosen(const soft_threadgroup *group)
{
    void *const *stacks = group->stack_of[group->simdgroup];
    const char *next = stacks[(group->lane + 1) % SOFT_SIMD_WIDTH];
    __builtin_prefetch(next);
    __builtin_prefetch(next + 64);
    return stacks[group->lane];
}

/* The running thread waits: run another until it is its turn again. */
SOFT_ON_FIBER static void
let_others_run(soft_threadgroup *group)
{
    soft_u32 simdgroup = group->simdgroup, lane = group->lane;
    choose_thread(group);
    void *to;
    if (has_begun(group)) {
        group->current = group->fiber_of[group->simdgroup][group->lane];
        to = stack_of_chosen(group);
    }
    else {
        soft_fiber *fresh = take_fiber(group);
        if (fresh == NULL) {
            stop_run("A kernel cannot run: there is no memory for the stacks of "
                     "its threads.");
        }
        begin_thread(group, fresh);
        group->current = fresh;
        to = fresh->stack_pointer;
    }
    soft_threadgroup_tell_checker(group, 1);
    if (group->lane != lane || group->simdgroup != simdgroup) {
        soft_fiber_switch(&group->stack_of[simdgroup][lane], to);
    }
}

/* ---- what runs on a fiber ---- */

/* Leave this fiber to whoever takes it; then its thread is set. */
SOFT_ON_FIBER static void
leave_fiber(soft_threadgroup *group, soft_fiber *fiber, void *to)
{
    fiber->next = group->free;
    group->free = fiber;
    soft_fiber_switch(&fiber->stack_pointer, to);
}

SOFT_ON_FIBER static void
go_on(soft_threadgroup *group, soft_fiber *fiber)
{
    if (!choose_thread(group) && !(begin_group(group) && choose_thread(group))) {
        leave_fiber(group, fiber, group->host);
        return;
    }
    void *to = NULL;
    if (has_begun(group)) {
        group->current = group->fiber_of[group->simdgroup][group->lane];
        to = stack_of_chosen(group);
    }
    else {
        begin_thread(group, fiber);
    }
    soft_threadgroup_tell_checker(group, 1);
    if (to != NULL) {
        leave_fiber(group, fiber, to);
    }
}

/* Thread after thread, and launch after launch. */
SOFT_ON_FIBER static void
run_fiber(void *context)
{
    soft_threadgroup *group = context;
    for (;;) {
        soft_fiber *fiber = group->current;
        if (group->run->is_straight) {
            soft_threadgroup_loop(group, &fiber->thread, next_group);
            leave_fiber(group, fiber, group->host);
            continue;
        }
        group->run->image->run_thread(&fiber->thread);
        if (group->run->is_checked) {
            soft_check_return();
        }
        count_out(group);
        go_on(group, fiber);
    }
}

/* ---- what the kernel calls ---- */

SOFT_ON_FIBER static const soft_thread *
self(void)
{
    return &running->current->thread;
}

SOFT_ON_FIBER static void
threadgroup_barrier(soft_u32 mem_flags, const void *site)
{
    soft_threadgroup *group = running;
    if (group->run->is_checked) {
        soft_check_wait(mem_flags, site);
    }
    group->simdgroups[group->simdgroup].at_barrier |= UINT32_C(1) << group->lane;
    group->waiting |= UINT32_C(1) << group->simdgroup;
    count_out(group);
    let_others_run(group);
}

SOFT_ON_FIBER static soft_u32
simd_exchange(const void *bytes, soft_u32 nbytes, const soft_u8 **values, const void *site,
              soft_u32 order)
{
    soft_threadgroup *group = running;
    soft_simdgroup *simdgroup = &group->simdgroups[group->simdgroup];
    if (group->run->is_checked) {
        soft_check_room(site);
    }
    simdgroup->sites[group->lane] = site;
    soft_simdgroup_come(simdgroup, group->lane, bytes, nbytes,
                        order != 0 ? order : (uintptr_t)site);
    let_others_run(group);
    *values = soft_simdgroup_values(simdgroup, nbytes & ~SOFT_ALL_LANES);
    return simdgroup->met;
}

SOFT_ON_FIBER static soft_u8 *
simd_values(soft_u32 nbytes, soft_u32 is_given)
{
    soft_simdgroup *simdgroup = &running->simdgroups[running->simdgroup];
    return simdgroup->values[simdgroup->half ^ is_given] + SOFT_SIMD_PLANE(nbytes);
}

SOFT_ON_FIBER static void *
give_place(soft_u32 number, bool is_argument, soft_u64 nbytes, soft_u64 alignment)
{
    soft_threadgroup *group = running;
    void *place =
        soft_threadgroup_memory_place(&group->memory, number, is_argument, nbytes, alignment);
    if (place == NULL) {
        stop_run("A kernel cannot run: its threadgroup memory exceeds the 32768 "
                 "bytes of a threadgroup. Declare or bind less.");
    }
    return place;
}

SOFT_ON_FIBER static void *
threadgroup_variable(soft_u32 number, soft_u64 nbytes, soft_u64 alignment)
{
    return give_place(number, false, nbytes, alignment);
}

SOFT_ON_FIBER static void *
threadgroup_argument(soft_u32 index)
{
    return give_place(index, true, running->run->launch->threadgroup_nbytes[index], 16);
}

const soft_runtime soft_threadgroup_runtime = {
    .self = self,
    .threadgroup_barrier = threadgroup_barrier,
    .simd_exchange = simd_exchange,
    .threadgroup_variable = threadgroup_variable,
    .threadgroup_argument = threadgroup_argument,
    .access = soft_check_access,
    .stop = soft_check_stop_for,
    .count = soft_check_count,
    .simd_values = simd_values,
    .texture_read = soft_texture_read,
    .texture_write = soft_texture_write,
    .texture_place = soft_texture_place,
    .texture_sample = soft_texture_sample,
    .texture_level = soft_texture_level,
    .texture_look = soft_texture_look,
    .texture_look_around = soft_texture_look_around,
    .texture_fence = soft_check_texture_fence,
};

/* ---- what the OS thread calls ---- */

/* All fibers are free: after a stop, which left threads on them. */
static void
reset_fibers(soft_threadgroup *group)
{
    group->free = NULL;
    for (unsigned number = group->fiber_count; number-- > 0;) {
        soft_fiber_prepare(&group->fibers[number], number, run_fiber, group);
        group->fibers[number].next = group->free;
        group->free = &group->fibers[number];
    }
}

SOFT_ON_FIBER bool
soft_threadgroup_run(soft_threadgroup *group, soft_run *run, uint64_t first, uint64_t count)
{
    group->run = run;
    group->next_group = first;
    group->end_group = first + count;
    group->memory.is_checked = run->is_checked;
    group->memory.is_poisoned = run->is_poisoned;
    if (!run->is_straight && !(begin_group(group) && choose_thread(group))) {
        return false; /* another OS thread has stopped the run */
    }
    if (run->image->regions != NULL && !soft_threadgroup_fit(group, run->image->regions)) {
        set_text(run, "A kernel cannot run: there is no memory for what its threads keep.");
        return false;
    }
    soft_fiber *fiber = take_fiber(group);
    if (fiber == NULL) {
        set_text(run, "A kernel cannot run: there is no memory for its stack.");
        return false;
    }
    running = group;
    group->current = fiber;
    if (!run->is_straight) {
        begin_thread(group, fiber);
        soft_threadgroup_tell_checker(group, 1);
    }
    if (!run->is_checked) {
        group->guard = (soft_guard){.image_low = run->code_low,
                                    .image_high = run->code_high,
                                    .leave = leave_kernel,
                                    .stack_low = stack_low};
        soft_guard_set(&group->guard);
    }
    soft_fiber_switch(&group->host, fiber->stack_pointer);
    if (!run->is_checked) {
        soft_guard_clear();
    }
    running = NULL;
    if (group->current == NULL) {
        reset_fibers(group);
    }
    return !soft_run_is_stopped(run);
}
