/* schedule.c: which pass runs next, and running it.
 *
 * Owns:    nothing.
 * Calls:   program.h, event.h, settings.h.
 * Threads: the queue's worker alone.
 */
#include "softmetal/gpu/schedule.h"

#include "softmetal/gpu/races.h"
#include "softmetal/host.h"
#include "softmetal/settings.h"

#define LOOK_AHEAD 24         /* passes among which one is chosen */
#define MOST_COMPARISONS 4096 /* pairs of commands; beyond, two passes count as dependent */
#define MOMENT_US 200         /* how long a wait that others may overtake blocks the worker */
#define ERROR_INTERNAL 1      /* MTLCommandBufferErrorInternal */
#define ERROR_TIMEOUT 2       /* MTLCommandBufferErrorTimeout */
#define ERROR_INVALID 9       /* MTLCommandBufferErrorInvalidResource */

struct candidate {
    soft_job *job;
    soft_pass *pass;
    bool is_held; /* behind a wait of its own command buffer */
};

bool
soft_job_is_done(const soft_job *job)
{
    return job->done_count == job->program->pass_count;
}

/* Does the command use the storage, and does it write it? */
static bool
touches(const soft_command *command, const soft_storage *storage, bool *writes)
{
    bool is_touched = false, is_written;
    *writes = false;
    for (int index = 0; index < soft_command_storage_count(command); index++) {
        if (soft_command_storage(command, index, &is_written) == storage) {
            is_touched = true;
            *writes = *writes || is_written;
        }
    }
    return is_touched;
}

static bool
commands_conflict(const soft_command *earlier, const soft_command *later)
{
    for (int index = 0; index < soft_command_storage_count(earlier); index++) {
        bool earlier_writes, later_writes;
        const soft_storage *named = soft_command_storage(earlier, index, &earlier_writes);
        if (named != NULL && named->is_tracked && touches(later, named, &later_writes) &&
            (earlier_writes || later_writes)) {
            return true;
        }
    }
    return false;
}

static bool
hazard_links(const soft_pass *earlier, const soft_pass *later)
{
    if (earlier->command_count * later->command_count > MOST_COMPARISONS) {
        return true;
    }
    for (size_t one = 0; one < earlier->command_count; one++) {
        for (size_t two = 0; two < later->command_count; two++) {
            if (commands_conflict(&earlier->commands[one], &later->commands[two])) {
                return true;
            }
        }
    }
    return false;
}

static bool
fence_links(const soft_pass *earlier, const soft_pass *later)
{
    for (size_t one = 0; one < earlier->updated_count; one++) {
        for (size_t two = 0; two < later->awaited_count; two++) {
            if (earlier->updated[one] == later->awaited[two]) {
                return true;
            }
        }
    }
    return false;
}

/* Two command buffers, where a wait holds back its own only: the later one's signal tells of
 * what is not held, and its wait of nothing. */
static bool
depends_on_other(const struct candidate *later, const struct candidate *earlier)
{
    if (later->pass->kind == SOFT_PASS_ENCODER && earlier->pass->kind == SOFT_PASS_ENCODER) {
        return fence_links(earlier->pass, later->pass) ||
               hazard_links(earlier->pass, later->pass);
    }
    return later->pass->kind == SOFT_PASS_SIGNAL && earlier->pass->kind != SOFT_PASS_WAIT &&
           !earlier->is_held;
}

static bool
depends_on(const soft_pass *later, const soft_pass *earlier)
{
    if (earlier->kind == SOFT_PASS_WAIT || later->kind != SOFT_PASS_ENCODER) {
        return true; /* nothing overtakes a wait; a wait or a signal overtakes nothing */
    }
    return earlier->kind == SOFT_PASS_ENCODER &&
           (fence_links(earlier, later) || hazard_links(earlier, later));
}

static bool
is_in_order(const soft_schedule *schedule)
{
    return schedule->order == SOFT_ORDER_FIRST && !schedule->waits_are_narrow;
}

static size_t
list_candidates(soft_schedule *schedule, struct candidate *candidates)
{
    size_t count = 0;
    size_t most = is_in_order(schedule) ? 1 : LOOK_AHEAD;
    for (size_t job = 0; job < schedule->count; job++) {
        soft_program *program = schedule->jobs[job].program;
        bool is_held = false;
        size_t skip = is_in_order(schedule) ? schedule->jobs[job].done_count : 0;
        for (size_t pass = skip; pass < program->pass_count; pass++) {
            if (count == most) {
                return count;
            }
            if (!program->passes[pass].is_done) {
                candidates[count] =
                    (struct candidate){&schedule->jobs[job], &program->passes[pass], is_held};
                is_held = is_held || program->passes[pass].kind == SOFT_PASS_WAIT;
                count += 1;
            }
        }
    }
    return count;
}

static uint64_t
event_deadline(void)
{
    uint64_t timeout_ms = soft_settings_get(SOFT_EVENT_TIMEOUT_MS);
    return timeout_ms == 0 ? SOFT_FOREVER : soft_monotonic_after(timeout_ms, 1000000);
}

/* A wait that would block, although other work need not. */
static bool
is_waiting(soft_pass *pass)
{
    if (pass->kind != SOFT_PASS_WAIT || soft_event_value(pass->event) >= pass->value) {
        return false;
    }
    if (pass->deadline_ns == 0) {
        pass->deadline_ns = event_deadline();
    }
    return soft_monotonic_ns() < pass->deadline_ns;
}

static size_t
list_ready(const soft_schedule *schedule, const struct candidate *candidates, size_t count,
           size_t *ready)
{
    bool narrow = schedule->waits_are_narrow;
    size_t ready_count = 0;
    for (size_t later = 0; later < count; later++) {
        bool blocked =
            narrow && candidates[later].job->code == 0 && is_waiting(candidates[later].pass);
        for (size_t earlier = 0; earlier < later && !blocked; earlier++) {
            bool is_other = candidates[earlier].job != candidates[later].job;
            blocked = narrow && is_other
                          ? depends_on_other(&candidates[later], &candidates[earlier])
                          : depends_on(candidates[later].pass, candidates[earlier].pass);
        }
        if (!blocked) {
            ready[ready_count] = later;
            ready_count += 1;
        }
    }
    return ready_count;
}

static int
wait_for_event(const soft_pass *pass)
{
    uint64_t deadline_ns = pass->deadline_ns != 0 ? pass->deadline_ns : event_deadline();
    switch (soft_event_wait(pass->event, pass->value, deadline_ns)) {
    case SOFT_EVENT_REACHED: return 0;
    case SOFT_EVENT_LATE: return ERROR_TIMEOUT;
    default: return SOFT_JOB_ENDED_BY_EXIT;
    }
}

static int
run_commands(soft_job *job, const soft_pass *pass)
{
    for (size_t index = 0; index < pass->command_count; index++) {
        switch (soft_command_run(&pass->commands[index], &job->text)) {
        case SOFT_RUN_DONE: break;
        case SOFT_RUN_BUFFER_GONE: return ERROR_INVALID;
        case SOFT_RUN_KERNEL_STOPPED: return ERROR_INTERNAL;
        }
    }
    return 0;
}

static void
run_pass(soft_job *job, soft_pass *pass)
{
    bool works = job->code == 0;
    if (pass->kind == SOFT_PASS_SIGNAL) {
        job->ended_ns = soft_monotonic_ns(); /* who waits for it begins later */
        if (works || soft_settings_get(SOFT_SIGNAL_ON_ERROR) != 0) {
            soft_races_run(job->program, pass);
            soft_event_raise(pass->event, pass->value);
        }
    }
    else if (works && pass->kind == SOFT_PASS_WAIT) {
        job->code = wait_for_event(pass);
        if (job->code == 0) {
            soft_races_run(job->program, pass);
        }
    }
    else if (works) {
        soft_races_run(job->program, pass);
        job->code = run_commands(job, pass);
        pass->has_failed = job->code != 0;
        job->ended_ns = soft_monotonic_ns();
    }
    pass->is_done = true;
    job->done_count += 1;
}

/* All that is left waits: block for a moment, for the first of them. */
static bool
wait_a_moment(const struct candidate *candidates, size_t count)
{
    for (size_t index = 0; index < count; index++) {
        soft_pass *pass = candidates[index].pass;
        if (pass->kind == SOFT_PASS_WAIT && soft_event_value(pass->event) < pass->value) {
            uint64_t until_ns = soft_monotonic_after(MOMENT_US, 1000);
            if (soft_event_wait(pass->event, pass->value, until_ns) == SOFT_EVENT_EXIT) {
                candidates[index].job->code = SOFT_JOB_ENDED_BY_EXIT;
                return false;
            }
            return true;
        }
    }
    return true;
}

bool
soft_schedule_step(soft_schedule *schedule)
{
    struct candidate candidates[LOOK_AHEAD];
    size_t ready[LOOK_AHEAD];
    size_t count = list_candidates(schedule, candidates);
    if (count == 0) {
        return false;
    }
    size_t chosen = 0;
    if (!is_in_order(schedule)) {
        size_t ready_count = list_ready(schedule, candidates, count, ready);
        if (ready_count == 0) {
            return wait_a_moment(candidates, count);
        }
        size_t which = schedule->order == SOFT_ORDER_FIRST ? 0
                       : schedule->order == SOFT_ORDER_LAST
                           ? ready_count - 1
                           : soft_seed_random(schedule->random) % ready_count;
        chosen = ready[which];
    }
    run_pass(candidates[chosen].job, candidates[chosen].pass);
    return candidates[chosen].job->code != SOFT_JOB_ENDED_BY_EXIT;
}
