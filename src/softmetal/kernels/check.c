/* check.c: see check.h.
 *
 * Owns:    the launch that this OS thread checks.
 * Calls:   the other check_*.h; settings.h.
 * Threads: see check.h.
 */
#include "softmetal/kernels/check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softmetal/kernels/check_barriers.h"
#include "softmetal/kernels/check_memory.h"
#include "softmetal/kernels/check_races.h"
#include "softmetal/kernels/fiber.h"
#include "softmetal/settings.h"

static _Thread_local __attribute__((tls_model("initial-exec"))) soft_check *current;

/* ---- the end of a launch that must not go on ---- */

SOFT_ON_FIBER static _Noreturn void
stop_with(soft_check *check, const char *text, const void *site)
{
    soft_finding *finding = soft_findings_add(&check->findings);
    if (finding != NULL) {
        snprintf(finding->text, sizeof finding->text, "%s", text);
        finding->at[0] = soft_at_running(check, site);
        finding->count = 1;
    }
    soft_check_stop(check);
}

SOFT_ON_FIBER static _Noreturn void
stop_overdue(soft_check *check, const void *site)
{
    char text[100];
    snprintf(text, sizeof text, "a thread still runs after %llu s (SOFTMETAL_KERNEL_TIMEOUT)",
             (unsigned long long)soft_settings_get(SOFT_KERNEL_TIMEOUT));
    stop_with(check, text, site);
}

/* In a signal's handler: the next access of the kernel is looked at from the beginning. */
static void
hurry(void)
{
    soft_check *check = current;
    check->is_overdue = true;
    check->stack_nbytes = 0;
    memset(check->recent, 0, sizeof check->recent);
}

/* On the guard's stack: the processor, or the watchdog, has taken the thread here. */
SOFT_ON_FIBER static void
leave_kernel(void)
{
    soft_check *check = current;
    const soft_guard *guard = &check->guard;
    char text[200];
    uintptr_t into_stack = guard->address - check->stack_low;
    switch (guard->signal) {
    case SIGURG:
        snprintf(text, sizeof text,
                 "a thread still runs after %llu s (SOFTMETAL_KERNEL_TIMEOUT)",
                 (unsigned long long)soft_settings_get(SOFT_KERNEL_TIMEOUT));
        break;
    case SIGFPE: snprintf(text, sizeof text, "a thread divides an integer by zero"); break;
    case SIGILL:
    case SIGTRAP:
        snprintf(text, sizeof text, "a thread passes the end of an array of its own");
        break;
    default:
        if (into_stack + 65536 < 131072) {
            snprintf(text, sizeof text, "a thread has no stack left for its variables");
        }
        else {
            snprintf(text, sizeof text, "a thread touches address 0x%zx, which is no memory",
                     (size_t)guard->address);
        }
    }
    stop_with(check, text, (const void *)guard->instruction);
}

/* ---- the launch ---- */

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
    check->guard.hurry = hurry;
    soft_memory_open(check);
    current = check;
    if (!soft_guard_enter(&check->guard, soft_settings_get(SOFT_KERNEL_TIMEOUT))) {
        current = NULL;
        soft_memory_close(check);
        free(check);
        return false;
    }
    return true;
}

bool
soft_check_end(char *error, size_t nbytes)
{
    soft_check *check = current;
    soft_guard_exit(&check->guard);
    current = NULL;
    soft_findings_say(&check->findings, check->launch.kernel, check->launch.image_path, error,
                      nbytes);
    bool is_clean = check->findings.count == 0;
    soft_memory_close(check);
    soft_order_free(&check->order);
    free(check);
    return is_clean;
}

/* ---- the threadgroup ---- */

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
    check->range_count = check->view_count;
    memset(check->recent, 0, sizeof check->recent);
    soft_barriers_group(check, position);
    if (!soft_order_group(&check->order, position)) {
        soft_finding *finding = soft_findings_add(&check->findings);
        if (finding != NULL) {
            snprintf(finding->text, sizeof finding->text, "the checker has no memory left");
        }
        soft_check_stop(check);
    }
}

void
soft_check_place(const void *address, size_t nbytes, soft_u32 number, bool is_argument)
{
    soft_check *check = current;
    if (check->range_count < SOFT_MOST_RANGES) {
        check->ranges[check->range_count++] = (soft_range){
            .base = (uintptr_t)address,
            .nbytes = nbytes,
            .shadow = &check->shadows[0],
            .memory = SOFT_THREADGROUP_MEMORY,
            .is_variable = !is_argument,
            .is_writable = true,
            .number = number,
        };
    }
}

void
soft_check_switch(const soft_thread *thread, const void *low, const void *high)
{
    soft_check *check = current;
    soft_race_settle(check);
    check->thread = thread;
    check->stack_low = (uintptr_t)low;
    check->stack_nbytes = (size_t)((const char *)high - (const char *)low);
}

SOFT_ON_FIBER void
soft_check_wait(soft_u32 mem_flags, const void *site)
{
    if (current->is_overdue) {
        stop_overdue(current, site);
    }
    soft_race_settle(current);
    soft_barriers_wait(current, mem_flags, site);
}

SOFT_ON_FIBER void
soft_check_open(void)
{
    soft_barriers_open(current);
}

void
soft_check_exchange(soft_u32 simdgroup, soft_u32 lanes)
{
    soft_barriers_meet(current, simdgroup, lanes);
}

void
soft_check_return(void)
{
    soft_race_settle(current);
    soft_barriers_return(current);
}

/* ---- what the image calls ---- */

static soft_recent *
recent_of(soft_check *check, soft_u32 how, const void *site)
{
    size_t is_write = (how & SOFT_ACCESS_WRITE) != 0;
    return &check->recent[((uintptr_t)site / 2 * 2 + is_write) % SOFT_RECENT];
}

/* `nbytes` at `into` are part of `size` bytes; never so if there are none. */
static inline bool
is_part(uintptr_t into, size_t nbytes, size_t size)
{
    return into < size && nbytes - 1 < size - into;
}

/* Of memory that this instruction did not touch last. */
SOFT_ON_FIBER static __attribute__((noinline)) void
access_elsewhere(soft_check *check, uintptr_t at, size_t nbytes, soft_u32 how, const void *site)
{
    if (is_part(at - check->stack_low, nbytes, check->stack_nbytes)) {
        return;
    }
    if (how & SOFT_ACCESS_FENCE) {
        soft_order_fence(&check->order);
        return;
    }
    soft_race_settle(check);
    if (nbytes == 0) {
        return;
    }
    if (check->is_overdue) {
        stop_overdue(check, site);
    }
    const soft_range *range = soft_memory_find(check, at, nbytes, how, site);
    if (range == NULL) {
        return;
    }
    bool is_watched = range->shadow->cells != NULL;
    *recent_of(check, how, site) =
        (soft_recent){range->base, range->nbytes, is_watched ? range : NULL};
    if (is_watched) {
        soft_race_touch(check, range, at, nbytes, how, site);
    }
}

/* Called for each access: nearly all are of what the instruction touched last. */
SOFT_ON_FIBER void
soft_check_access(const void *address, soft_u64 nbytes, soft_u32 how, const void *site)
{
    soft_check *check = current;
    uintptr_t at = (uintptr_t)address;
    const soft_recent *recent = recent_of(check, how, site);
    if (!is_part(at - recent->base, nbytes, recent->nbytes) || check->rewrite.range != NULL) {
        access_elsewhere(check, at, nbytes, how, site);
    }
    else if (recent->range != NULL) {
        soft_race_touch(check, recent->range, at, nbytes, how, site);
    }
}

SOFT_ON_FIBER void
soft_check_out_of_bounds(const void *site)
{
    stop_with(current, "a thread passes the end of an array of its own", site);
}

SOFT_ON_FIBER void
soft_check_divided_by_zero(const void *site)
{
    stop_with(current, "a thread divides an integer by zero", site);
}
