/* check.c: see check.h.
 *
 * Owns:    the launch that this OS thread checks.
 * Calls:   the other check_*.h; settings.h.
 */
#include "softmetal/checker/check.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "softmetal/checker/check_count.h"
#include "softmetal/checker/check_state.h"
#include "softmetal/fiber.h"
#include "softmetal/settings.h"

static _Thread_local __attribute__((tls_model("initial-exec"))) soft_check *current;

/* An image has one soft_watch: its checked launches take turns. */
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t watch_freed = PTHREAD_COND_INITIALIZER;

/* ---- who is told of what, in this order ---- */

static const soft_observers checking = {
    .group = {soft_race_end_group},
    .access = {soft_given_access, soft_series_access},
    .fence = {soft_series_end, soft_waiting_fence},
    .barrier = {soft_waiting_barrier},
    .meeting = {soft_waiting_meeting},
    .returned = soft_series_end,
    .end = {soft_race_end_group, soft_outputs_end},
};

/* The image asks soft_count_access itself. */
static const soft_observers counting = {
    .begin = soft_count_begin,
    .group = {soft_count_group},
    .place = {soft_count_place},
    .turn = soft_count_turn,
    .barrier = {soft_count_barrier},
    .meeting = {soft_count_meeting},
    .end = {soft_count_end},
    .close = {soft_count_close},
};

#define TELL(event, ...) \
    for (int i = 0; check->observers->event[i] != NULL; i++) { \
        check->observers->event[i](__VA_ARGS__); \
    }

/* ---- the end of a launch that must not go on ---- */

/* The stack below the caller, for what the checker calls: also for allocations, whose locks a handler
 * must not leave.  Without it the launch stops here. */
#define ROOM_NBYTES ((uintptr_t)16 << 10)

SOFT_ON_FIBER static inline void
need_room(soft_check *check, const void *site)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (__builtin_expect(here - check->stack_low < ROOM_NBYTES, 0)) {
        soft_check_stop_at(check, (soft_finding){.kind = SOFT_FOUND_STACK, .first = here},
                           site);
    }
}

SOFT_ON_FIBER void
soft_check_room(const void *site)
{
    need_room(current, site);
}

/* In a handler of a signal. */
static uintptr_t
stack_low(void)
{
    return current->stack_low;
}

/* In a signal's handler: the next access of the kernel is looked at from the beginning. */
static void
hurry(void)
{
    soft_check *check = current;
    check->is_overdue = true;
    check->stack_nbytes = 0;
    check->era += 1;
    for (soft_site *site = check->watch->sites; site < check->watch->sites_end; site++) {
        site->span = 0;
    }
    for (soft_counted *site = check->watch->counted; site < check->watch->counted_end; site++) {
        site->span = 0;
    }
}

/* On the guard's stack: the processor, or the timer, has taken the thread here. */
SOFT_ON_FIBER static void
leave_kernel(void)
{
    soft_check *check = current;
    const soft_guard *guard = &check->guard;
    const void *site = (const void *)guard->instruction;
    switch (guard->signal) {
    case SIGURG: soft_check_stop_overdue(check, site);
    case SIGFPE: soft_check_stop_for(SOFT_STOP_DIVISION, 0, 0, site);
    case SIGILL: /* clang's -fsanitize=local-bounds */
    case SIGTRAP: soft_check_stop_for(SOFT_STOP_ARRAY, 0, 0, site);
    default: break;
    }
    bool is_stack = guard->address - check->stack_low + 65536 < 131072;
    soft_check_stop_at(check,
                       (soft_finding){.kind = is_stack ? SOFT_FOUND_STACK : SOFT_FOUND_FAULT,
                                      .first = guard->address},
                       site);
}

/* ---- the launch ---- */

/* Nothing is remembered of earlier launches. */
static void
take_watch(soft_watch *watch)
{
    pthread_mutex_lock(&watch_lock);
    while (watch->is_taken) {
        pthread_cond_wait(&watch_freed, &watch_lock);
    }
    watch->is_taken = true;
    pthread_mutex_unlock(&watch_lock);
    for (soft_site *site = watch->sites; site < watch->sites_end; site++) {
        *site = (soft_site){.code = site->code, .key = SOFT_NO_KEY};
    }
}

static void
give_watch_back(soft_watch *watch)
{
    /* mutant survives (dropped lock): who begins to wait just then is not woken */
    pthread_mutex_lock(&watch_lock);
    watch->is_taken = false;
    pthread_cond_broadcast(&watch_freed);
    pthread_mutex_unlock(&watch_lock);
}

/* All but what was found. */
static void
forget(soft_check *check)
{
    TELL(close, check);
    soft_memory_close(check);
    soft_order_free(&check->order);
    give_watch_back(check->watch);
}

bool
soft_check_begin(const soft_check_launch *launch)
{
    soft_check *check = calloc(1, sizeof *check);
    if (check == NULL) {
        return false;
    }
    check->launch = *launch;
    check->image_base = (uintptr_t)launch->image_base;
    check->guard.image_low = check->image_base;
    check->guard.image_high = check->image_base + launch->image_nbytes;
    check->guard.leave = leave_kernel;
    check->guard.stack_low = stack_low;
    check->guard.is_checked = true;
    check->guard.hurry = hurry;
    check->watch = launch->image->watch;
    check->observers = launch->image->is_counting ? &counting : &checking;
    take_watch(check->watch);
    bool is_ready = soft_memory_open(check);
    current = check;
    is_ready = is_ready && (check->observers->begin == NULL || check->observers->begin(check));
    if (!is_ready || !soft_guard_enter(&check->guard, soft_settings_get(SOFT_KERNEL_TIMEOUT))) {
        current = NULL;
        forget(check);
        free(check);
        return false;
    }
    return true;
}

bool
soft_check_end(bool is_done, char *error, size_t nbytes)
{
    soft_check *check = current;
    soft_guard_exit(&check->guard);
    current = NULL;
    if (is_done) {
        TELL(end, check);
    }
    forget(check);
    bool is_clean = !soft_findings_say(&check->findings, &check->launch, error, nbytes);
    /* mutant survives (dropped count): a leak, and no Metal object */
    free(check);
    return is_clean;
}

/* ---- the threadgroup ---- */

static void
begin_threads(soft_check *check, const soft_u32 position[3])
{
    const soft_launch *launch = check->launch.launch;
    check->thread_count = 1;
    for (int axis = 0; axis < 3; axis++) {
        soft_u32 rest = launch->grid[axis] - position[axis] * launch->group[axis];
        check->thread_count *= rest < launch->group[axis] ? rest : launch->group[axis];
    }
    check->wait_flags = ~0u;
    memset(check->sites, 0, check->thread_count * sizeof check->sites[0]);
    memset(check->has_returned, 0, check->thread_count);
}

SOFT_ON_FIBER void
soft_check_group(const soft_u32 position[3], const void *memory, size_t memory_nbytes,
                 const void *state, size_t state_nbytes)
{
    soft_check *check = current;
    if (check->shadows[0].base == 0) {
        soft_shadow_open(&check->shadows[0], (uintptr_t)memory, memory_nbytes, 16);
    }
    check->state_low = (uintptr_t)state;
    check->state_nbytes = state_nbytes;
    begin_threads(check, position);
    TELL(group, check);
    soft_textures_settle(check);
    check->range_count = check->view_count;
    check->era += 1;
    if (!soft_order_group(&check->order, position)) {
        soft_check_stop_without_memory(check);
    }
}

void
soft_check_place(const void *address, size_t nbytes, soft_u32 number, bool is_argument)
{
    soft_check *check = current;
    check->ranges[check->range_count++] = (soft_range){
        .base = (uintptr_t)address,
        .nbytes = nbytes,
        .shadow = &check->shadows[0],
        .memory = SOFT_THREADGROUP_MEMORY,
        .is_variable = !is_argument,
        .is_writable = true,
        .number = number,
    };
    TELL(place, check, &check->ranges[check->range_count - 1]);
}

void
soft_check_switch(const soft_thread *thread, soft_u32 count, const void *low, const void *high)
{
    soft_check *check = current;
    soft_race_settle(check);
    check->thread = thread;
    check->watch->thread = thread->index;
    check->row_end = thread->index + count;
    check->stack_low = (uintptr_t)low;
    check->stack_nbytes = (size_t)((const char *)high - (const char *)low);
    if (check->observers->turn != NULL) {
        check->observers->turn(check, count);
    }
}

SOFT_ON_FIBER void
soft_check_wait(soft_u32 mem_flags, const void *site)
{
    need_room(current, site);
    if (current->is_overdue) {
        soft_check_stop_overdue(current, site);
    }
    soft_race_settle(current);
    current->sites[current->watch->thread] = site;
    current->wait_flags &= mem_flags;
}

SOFT_ON_FIBER void
soft_check_open(void)
{
    soft_check *check = current;
    const void *site = soft_waiting_site(check);
    TELL(barrier, check, site);
    soft_textures_settle(check);
    check->wait_flags = ~0u;
}

void
soft_check_exchange(soft_u32 simdgroup, soft_u32 lanes, const void *site)
{
    soft_check *check = current;
    TELL(meeting, check, simdgroup, lanes, site);
}

SOFT_ON_FIBER void
soft_check_all_met(soft_u32 simdgroup, soft_u32 lanes, soft_u32 others,
                   const void *const *sites)
{
    soft_waiting_lanes(current, simdgroup, lanes, others, sites);
}

void
soft_check_return(void)
{
    soft_check *check = current;
    soft_race_settle(check);
    if (check->observers->returned != NULL) {
        check->observers->returned(check);
    }
    check->has_returned[check->thread->index] = true;
}

/* ---- what the image calls ---- */

/* `nbytes` at `into` are part of `size` bytes; never so if there are none. */
static inline bool
is_part(uintptr_t into, size_t nbytes, size_t size)
{
    return into < size && nbytes - 1 < size - into;
}

/* Check memory that this instruction did not touch last. */
SOFT_ON_FIBER static __attribute__((noinline)) void
access_elsewhere(soft_check *check, uintptr_t at, size_t nbytes, soft_u32 how, soft_site *site)
{
    if (is_part(at - check->stack_low, nbytes, check->stack_nbytes)) {
        return;
    }
    soft_race_settle(check);
    if (how & SOFT_ACCESS_FENCE) {
        TELL(fence, check);
        return;
    }
    if (nbytes == 0) {
        return;
    }
    if (check->is_overdue) {
        soft_check_stop_overdue(check, site->code);
    }
    const soft_range *range;
    if (!soft_memory_find(check, at, nbytes, how, &range)) {
        soft_check_stop_at(check, soft_memory_refuse(check, at, nbytes, how), site->code);
    }
    if (range != NULL) {
        TELL(access, check, range, at, nbytes, how, site);
    }
}

/* Called for each access that the image does not answer itself: mostly of what the instruction
 * touched last. */
SOFT_ON_FIBER void
soft_check_access(const void *address, soft_u64 nbytes, soft_u32 how, soft_site *site)
{
    soft_check *check = current;
    uintptr_t at = (uintptr_t)address;
    const soft_range *range = site->range;
    need_room(check, site->code);
    if (site->era != check->era || !is_part(at - range->base, nbytes, range->nbytes) ||
        check->rewrite.range != NULL) {
        access_elsewhere(check, at, nbytes, how, site);
    }
    else {
        soft_series_touch(check, range, at, nbytes, how, site);
    }
}

SOFT_ON_FIBER void
soft_check_count(const void *address, soft_counted *counted, const void *site)
{
    need_room(current, site);
    soft_count_access(current, (uintptr_t)address, counted, site);
}

SOFT_ON_FIBER void
soft_check_texture(const soft_texture *texture, soft_u32 how, const void *site)
{
    need_room(current, site);
    soft_textures_know(current, texture, how, site);
}

SOFT_ON_FIBER void
soft_check_pixel(const soft_texture *texture, const void *place, const soft_u32 coordinates[4],
                 soft_u32 how, const void *site)
{
    need_room(current, site);
    soft_textures_touch(current, texture, (uintptr_t)place, coordinates, how, site);
}

void
soft_check_texture_fence(const soft_texture *texture)
{
    (void)texture;
    soft_textures_settle(current);
}

SOFT_ON_FIBER _Noreturn void
soft_check_stop_for(soft_u32 why, soft_u64 first, soft_u64 second, const void *site)
{
    static const soft_found kinds[] = {
        [SOFT_STOP_ARRAY] = SOFT_FOUND_ARRAY,       [SOFT_STOP_VECTOR] = SOFT_FOUND_VECTOR,
        [SOFT_STOP_DIVISION] = SOFT_FOUND_DIVISION, [SOFT_STOP_SHIFT] = SOFT_FOUND_SHIFT,
        [SOFT_STOP_LANE] = SOFT_FOUND_LANE,
    };
    need_room(current, site);
    soft_finding found =
        why == SOFT_STOP_MISALIGNED
            ? soft_memory_refuse_misaligned(current, (uintptr_t)first, (size_t)second)
            : (soft_finding){.kind = kinds[why], .first = first, .second = second};
    soft_check_stop_at(current, found, site);
}
