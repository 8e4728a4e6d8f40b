/* worker.m: the thread that plays GPU for one queue.
 *
 * Owns:      one reference to its lane, and one to the command buffer it runs.
 * Calls:     program.h, lane.h, event.h, failure.h, settings.h.
 * Threads:   it is one; handlers run on it, inside a pool.
 * Invariant: nothing a command buffer kept alive is still kept when its waiters wake.
 */
#import "objects.h"

#include <stdio.h>

#include "autorelease.h"
#include "failure.h"
#include "monotonic.h"
#include "object_list.h"
#include "process.h"
#include "settings.h"
#include "validation.h"

/* How one command buffer ended: 0, a MTLCommandBufferError, or this. */
#define ENDED_BY_EXIT (-1)

static double
now_in_seconds(void)
{
    return (double)soft_monotonic_ns() * 1e-9;
}

/* The next command buffer in order, once it is committed; nil when the lane is done with. */
static SoftMetalCommandBuffer *
take_next(soft_lane *lane)
{
    SoftMetalCommandBuffer *next = nil;
    pthread_mutex_lock(&lane->lock);
    while (!soft_process_is_exiting() && !(lane->first != NULL && lane->first->is_committed) &&
           !(lane->is_closed && lane->first == NULL)) {
        pthread_cond_wait(&lane->changed, &lane->lock);
    }
    if (!soft_process_is_exiting() && lane->first != NULL) {
        next = (SoftMetalCommandBuffer *)lane->first->owner;
        soft_lane_remove(lane, lane->first);
    }
    pthread_mutex_unlock(&lane->lock);
    return next;
}

static int
wait_for_event(const soft_pass *pass)
{
    uint64_t timeout_ms = soft_settings_get(SOFT_EVENT_TIMEOUT_MS);
    uint64_t deadline =
        timeout_ms == 0 ? SOFT_FOREVER : soft_monotonic_after(timeout_ms, 1000000);
    switch (soft_event_wait(pass->event, pass->value, deadline)) {
    case SOFT_EVENT_REACHED:
        return 0;
    case SOFT_EVENT_LATE:
        return MTLCommandBufferErrorTimeout;
    default:
        return ENDED_BY_EXIT;
    }
}

static int
run_pass(const soft_pass *pass)
{
    switch (pass->kind) {
    case SOFT_PASS_WAIT:
        return wait_for_event(pass);
    case SOFT_PASS_SIGNAL:
        soft_event_raise(pass->event, pass->value);
        return 0;
    default:
        for (size_t index = 0; index < pass->command_count; index++) {
            if (!soft_command_run(&pass->commands[index])) {
                return MTLCommandBufferErrorInvalidResource;
            }
        }
        return 0;
    }
}

/* What the buffer must not contain when it reaches the GPU. */
static int
check_storage(const soft_program *program)
{
    for (size_t index = 0; index < program->bound_count; index++) {
        if (__atomic_load_n(&program->bound[index]->is_orphan, __ATOMIC_ACQUIRE)) {
            return MTLCommandBufferErrorInvalidResource;
        }
        int purgeable = __atomic_load_n(&program->bound[index]->purgeable, __ATOMIC_ACQUIRE);
        if (purgeable == MTLPurgeableStateVolatile || purgeable == MTLPurgeableStateEmpty) {
            return MTLCommandBufferErrorInvalidResource;
        }
    }
    return 0;
}

static int
run_program(soft_lane *lane, SoftMetalCommandBuffer *buffer)
{
    int code = 0;
    BOOL fails = soft_failure_strikes(SOFT_FAIL_COMMAND, &code);
    uint64_t latency_us = soft_settings_get(SOFT_LATENCY_US);
    if (latency_us > 0 && !soft_lane_sleep(lane, soft_monotonic_after(latency_us, 1000))) {
        return ENDED_BY_EXIT;
    }
    if (!fails) {
        code = check_storage(&buffer->_program);
    }
    for (size_t index = 0; index < buffer->_program.pass_count; index++) {
        soft_pass *pass = &buffer->_program.passes[index];
        if (code == 0) {
            code = run_pass(pass);
        }
        else if (pass->kind == SOFT_PASS_SIGNAL && code != ENDED_BY_EXIT &&
                 soft_settings_get(SOFT_SIGNAL_ON_ERROR) != 0) {
            run_pass(pass);
        }
    }
    return code;
}

static void
schedule(SoftMetalCommandBuffer *buffer)
{
    soft_lane *lane = buffer->_lane;
    [buffer setStatus:MTLCommandBufferStatusScheduled];
    [buffer runHandlers:buffer->_scheduledHandlers count:buffer->_scheduledCount];
    pthread_mutex_lock(&lane->lock);
    buffer->_isScheduled = YES;
    buffer->_startTime = now_in_seconds();
    pthread_cond_broadcast(&lane->changed);
    pthread_mutex_unlock(&lane->lock);
}

static void
set_error(SoftMetalCommandBuffer *buffer, int code)
{
    char text[128];
    snprintf(text, sizeof text, "The command buffer did not complete (MTLCommandBufferError%s, %d).",
             soft_failure_code_name(code), code);
    [buffer failWithCode:code text:text];
}

/* The worker's reference goes before the waiters wake, so that a waiter who counts objects finds
 * only its own. */
static void
finish(SoftMetalCommandBuffer *buffer)
{
    soft_lane *lane = buffer->_lane;
    pthread_mutex_lock(&lane->lock);
    buffer->_isFinished = YES;
    lane->in_flight -= 1;
    BOOL last = !soft_object_release_unless_last(buffer);
    pthread_cond_broadcast(&lane->changed);
    pthread_mutex_unlock(&lane->lock);
    if (last) {
        [buffer release];
    }
}

/* NO when the process exits: the buffer is left as it is. */
static BOOL
run_buffer(soft_lane *lane, SoftMetalCommandBuffer *buffer)
{
    size_t pool = soft_autorelease_push();
    schedule(buffer);
    int code = run_program(lane, buffer);
    BOOL goes_on = code != ENDED_BY_EXIT;
    if (goes_on) {
        if (code != 0) {
            set_error(buffer, code);
        }
        pthread_mutex_lock(&lane->lock);
        buffer->_endTime = now_in_seconds();
        pthread_mutex_unlock(&lane->lock);
        [buffer setStatus:code == 0 ? MTLCommandBufferStatusCompleted
                                    : MTLCommandBufferStatusError];
        [buffer runHandlers:buffer->_completedHandlers count:buffer->_completedCount];
        [buffer releaseKept];
    }
    soft_autorelease_pop(pool);
    if (goes_on) {
        finish(buffer);
        soft_process_end_work();
    }
    return goes_on;
}

static void *
run_lane(void *argument)
{
    soft_lane *lane = argument;
    for (;;) {
        SoftMetalCommandBuffer *buffer = take_next(lane);
        if (buffer == nil || !run_buffer(lane, buffer)) {
            break;
        }
    }
    soft_lane_release(lane);
    soft_process_end_worker();
    return NULL;
}

BOOL
soft_worker_start(soft_lane *lane)
{
    soft_lane_retain(lane);
    if (!soft_process_start_worker(run_lane, lane)) {
        soft_lane_release(lane);
        return NO;
    }
    return YES;
}
