/* worker.m: the thread that plays GPU for one queue.
 *
 * Owns:      one reference to its lane, and one to each command buffer it runs.
 * Calls:     schedule.h, lane.h, failure.h, settings.h.
 * Threads:   it is one; handlers run on it, inside a pool.
 * Invariant: nothing a command buffer kept alive is still kept when its waiters wake.
 */
#import "softmetal/apple/objects.h"

#include <stdio.h>
#include <stdlib.h>

#include "softmetal/apple/object_list.h"
#include "softmetal/apple/process.h"
#include "softmetal/failure.h"
#include "softmetal/gpu/schedule.h"
#include "softmetal/host.h"
#include "softmetal/settings.h"

#define MOST_AT_ONCE 8 /* command buffers whose work may overlap under a seed */

/* Command buffers that the GPU works on at the same time, in the order of the queue. */
struct batch {
    SoftMetalCommandBuffer *buffers[MOST_AT_ONCE]; /* owned (+1) until finished */
    soft_job jobs[MOST_AT_ONCE];
    size_t count;
};

static double
now_in_seconds(void)
{
    return (double)soft_monotonic_ns() * 1e-9;
}

static BOOL
has_committed(const soft_lane *lane)
{
    const soft_slot *first = TAILQ_FIRST(&lane->slots);
    return first != NULL && first->is_committed;
}

/* The next command buffer in order, if it is committed; `waits`: once it is.  nil: it is not, or none
 * will come any more. */
static SoftMetalCommandBuffer *
take_first(soft_lane *lane, BOOL waits)
{
    SoftMetalCommandBuffer *buffer = nil;
    pthread_mutex_lock(&lane->lock);
    while (waits && !soft_process_is_exiting() && !has_committed(lane) &&
           !(lane->is_closed && TAILQ_EMPTY(&lane->slots))) {
        pthread_cond_wait(&lane->work, &lane->lock);
    }
    if (!soft_process_is_exiting() && has_committed(lane)) {
        soft_slot *first = TAILQ_FIRST(&lane->slots);
        soft_lane_remove(lane, first);
        buffer = (SoftMetalCommandBuffer *)first->owner;
    }
    pthread_mutex_unlock(&lane->lock);
    return buffer;
}

/* The error code, if a buffer that it names may not be used; else 0. */
static int
check_storage(const soft_program *program)
{
    for (size_t index = 0; index < program->bound_count; index++) {
        const soft_storage *storage = program->bound[index];
        if (__atomic_load_n(&storage->is_orphan, __ATOMIC_ACQUIRE) ||
            soft_storage_may_be_empty(storage)) {
            return MTLCommandBufferErrorInvalidResource;
        }
    }
    return 0;
}

static void
check_job(soft_job *job, const soft_lane *lane)
{
    if (job->code == 0 && lane->is_ignored) {
        job->code = MTLCommandBufferErrorAccessRevoked;
    }
    __atomic_store_n(&soft_gpu_has_worked, 1, __ATOMIC_RELAXED);
    if (job->code == 0) {
        job->code = check_storage(job->program);
    }
}

/* Errors of the GPU's, after which Metal may ignore what the queue is given: "Ignored (for causing
 * prior/excessive GPU errors)". */
static BOOL
is_remembered(int code)
{
    return code == MTLCommandBufferErrorInternal || code == MTLCommandBufferErrorTimeout ||
           code == MTLCommandBufferErrorPageFault;
}

static void
add_to_batch(struct batch *batch, SoftMetalCommandBuffer *buffer)
{
    soft_lane *lane = buffer->_lane;
    double begin = now_in_seconds();
    [buffer setStatus:MTLCommandBufferStatusScheduled];
    [buffer runHandlers:&buffer->_scheduledHandlers];
    pthread_mutex_lock(&lane->lock);
    buffer->_isScheduled = YES;
    buffer->_scheduleTime = begin;
    buffer->_startTime = now_in_seconds();
    pthread_cond_broadcast(&buffer->_changed);
    pthread_mutex_unlock(&lane->lock);
    soft_races_begin(buffer->_order, lane->races, buffer->_program.pass_count);
    batch->buffers[batch->count] = buffer;
    batch->jobs[batch->count] =
        (soft_job){.program = &buffer->_program, .code = buffer->_injected};
    batch->count += 1;
}

/* NO when the process exits meanwhile. */
static BOOL
sleep_us(soft_lane *lane, uint64_t microseconds)
{
    return microseconds == 0 || soft_lane_sleep(lane, soft_monotonic_after(microseconds, 1000));
}

/* What else is committed.  NO when the process exits meanwhile. */
static BOOL
take_more(soft_lane *lane, struct batch *batch)
{
    size_t before = batch->count;
    size_t pool = soft_autorelease_push();
    while (batch->count < MOST_AT_ONCE) {
        SoftMetalCommandBuffer *buffer = take_first(lane, NO);
        if (buffer == nil) {
            break;
        }
        add_to_batch(batch, buffer);
    }
    soft_autorelease_pop(pool);
    if (batch->count == before) {
        return YES;
    }
    BOOL goes_on = sleep_us(lane, soft_settings_get(SOFT_LATENCY_US));
    for (size_t index = before; index < batch->count; index++) {
        check_job(&batch->jobs[index], lane);
    }
    return goes_on;
}

/* Under a seed: come late by chance, and take along what else is committed by then. */
static BOOL
widen_batch(soft_lane *lane, struct batch *batch, soft_seed_kind order)
{
    uint64_t jitter_us = soft_settings_get(SOFT_JITTER_US);
    if (order == SOFT_ORDER_FIRST) {
        return YES;
    }
    if (order == SOFT_ORDER_RANDOM && jitter_us > 0) {
        jitter_us = soft_seed_random(&lane->random) % (jitter_us + 1);
    }
    if (!sleep_us(lane, jitter_us)) {
        return NO;
    }
    return take_more(lane, batch);
}

/* `told`: what the kernel that was stopped has to say, or NULL. */
static void
set_error(SoftMetalCommandBuffer *buffer, int code, const char *told)
{
    char text[128];
    snprintf(text, sizeof text,
             "The command buffer did not complete (MTLCommandBufferError%s, %d).",
             soft_failure_code_name(code), code);
    [buffer failWithCode:code text:told != NULL ? told : text hasRun:is_remembered(code)];
    if (code == MTLCommandBufferErrorDeviceRemoved) {
        soft_failure_remove_devices();
    }
}

/* The worker's reference goes before the waiters hold the lock, so that a waiter who counts objects
 * finds only its own; and after they are woken, since then the buffer may go. */
static void
finish(SoftMetalCommandBuffer *buffer)
{
    soft_lane *lane = buffer->_lane;
    pthread_mutex_lock(&lane->lock);
    buffer->_isFinished = YES;
    soft_lane_make_room(lane);
    pthread_cond_broadcast(&buffer->_changed);
    BOOL last = !soft_object_count_if_above(buffer, 1, -1);
    pthread_mutex_unlock(&lane->lock);
    if (last) {
        [buffer release];
    }
}

static void
complete(soft_lane *lane, SoftMetalCommandBuffer *buffer, const soft_job *job)
{
    size_t pool = soft_autorelease_push();
    int code = job->code;
    if (code != 0) {
        set_error(buffer, code, job->text);
        lane->is_ignored |= is_remembered(code) && soft_settings_get(SOFT_AFTER_ERROR) != 0;
    }
    free(job->text);
    soft_races_complete(buffer->_order);
    pthread_mutex_lock(&lane->lock);
    buffer->_endTime = job->ended_ns == 0 ? now_in_seconds() : (double)job->ended_ns * 1e-9;
    pthread_mutex_unlock(&lane->lock);
    [buffer
        setStatus:code == 0 ? MTLCommandBufferStatusCompleted : MTLCommandBufferStatusError];
    soft_races_enter_handlers(buffer->_order);
    [buffer runHandlers:&buffer->_completedHandlers];
    soft_races_enter_handlers(NULL);
    [buffer releaseKept];
    soft_autorelease_pop(pool);
    finish(buffer);
    soft_process_count_work(-1);
}

static void
complete_at(soft_lane *lane, struct batch *batch, size_t index)
{
    SoftMetalCommandBuffer *buffer = batch->buffers[index];
    soft_job job = batch->jobs[index];
    batch->count -= 1;
    for (size_t next = index; next < batch->count; next++) {
        batch->buffers[next] = batch->buffers[next + 1];
        batch->jobs[next] = batch->jobs[next + 1];
    }
    complete(lane, buffer, &job);
}

/* Complete a command buffer that is done, and whose turn it is.  NO: there is none. */
static BOOL
complete_one(soft_lane *lane, struct batch *batch, BOOL in_any_order)
{
    size_t most = in_any_order ? batch->count : 1;
    for (size_t index = 0; index < most; index++) {
        if (soft_job_is_done(&batch->jobs[index])) {
            complete_at(lane, batch, index);
            return YES;
        }
    }
    return NO;
}

/* Run the passes, completing each command buffer as soon as it and those before it are done;
 * where waits are narrow, as soon as it is done itself, and what is committed meanwhile joins
 * in. NO when the process exits: what is left of the batch stays as it is. */
static BOOL
work_off(soft_lane *lane, struct batch *batch, soft_seed_kind order)
{
    BOOL narrow = soft_settings_get(SOFT_WAIT_SCOPE) != 0;
    while (batch->count > 0) {
        if (complete_one(lane, batch, narrow)) {
            continue;
        }
        if (narrow && !take_more(lane, batch)) {
            return NO;
        }
        soft_schedule schedule = {batch->jobs, batch->count, order, narrow, &lane->random};
        if (!soft_schedule_step(&schedule)) {
            return NO;
        }
    }
    return YES;
}

static void
seed_lane(soft_lane *lane)
{
    uint64_t seed = soft_settings_get(SOFT_SEED);
    if (lane->seed != seed) {
        lane->seed = seed;
        lane->random = seed ^ lane->serial << 32;
    }
}

static BOOL
run_batch(soft_lane *lane, SoftMetalCommandBuffer *first)
{
    struct batch batch = {.count = 0};
    soft_seed_kind order = soft_seed_order();
    seed_lane(lane);
    size_t pool = soft_autorelease_push();
    add_to_batch(&batch, first);
    BOOL goes_on = sleep_us(lane, soft_settings_get(SOFT_LATENCY_US));
    check_job(&batch.jobs[0], lane);
    goes_on = goes_on && widen_batch(lane, &batch, order);
    soft_autorelease_pop(pool);
    return goes_on && work_off(lane, &batch, order);
}

static void *
run_lane(void *argument)
{
    soft_lane *lane = argument;
    soft_process_enter_worker();
    for (;;) {
        SoftMetalCommandBuffer *buffer = take_first(lane, YES);
        if (buffer == nil || !run_batch(lane, buffer)) {
            break;
        }
    }
    soft_lane_release(lane);
    soft_process_end_worker();
    return NULL;
}

BOOL
soft_worker_exists(soft_lane *lane)
{
    if (__atomic_load_n(&lane->has_worker, __ATOMIC_ACQUIRE)) {
        return YES;
    }
    pthread_mutex_lock(&lane->lock);
    BOOL exists = lane->has_worker;
    if (!exists) {
        soft_lane_retain(lane);
        exists = soft_process_start_worker(run_lane, lane);
        __atomic_store_n(&lane->has_worker, exists, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lane->lock);
    if (!exists) {
        soft_lane_release(lane);
    }
    return exists;
}
