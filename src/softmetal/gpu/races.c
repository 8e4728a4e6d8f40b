/* races.c: clocks of the CPU, of queues, of command buffers and of events.
 *
 * Owns:    everything here behind `lock`; a report is made after it is dropped.
 * Calls:   race_shadow.h for the bytes, race_pass.h for the passes of one queue, event.h, host.h.
 */
#include "softmetal/gpu/races.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "softmetal/call_site.h"
#include "softmetal/gpu/event.h"
#include "softmetal/gpu/program.h"
#include "softmetal/gpu/race_pass.h"
#include "softmetal/gpu/race_shadow.h"
#include "softmetal/host.h"
#include "softmetal/softmetal.h"

struct soft_race_queue {
    int component;
    uint64_t serial;
    soft_race_clock waited;  /* what its waits so far have learned */
    soft_race_clock commits; /* what was known at the commits so far */
    soft_race_recent recent;
};

struct soft_race_work {
    soft_race_queue *queue; /* borrowed while the worker runs it */
    uint64_t first;         /* number of its first pass */
    size_t pass_count;
    soft_race_clock commit; /* what was known when it was committed */
    soft_race_clock until;  /* ... and at the commits of all before it on the queue */
    soft_race_clock done;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static soft_race_clock cpu = {.at = {[0] = 1}};
static soft_race_clock left;      /* at no buffer in particular */
static soft_race_clock completed; /* what all command buffers that are complete have done */
static uint64_t issued[SOFT_RACE_COMPONENTS]; /* the last number of each component */
static bool is_taken[SOFT_RACE_COMPONENTS];   /* by a queue that lives */
/* The clock of the command buffer whose handlers run on this thread. */
static __thread soft_race_clock *handler_clock;

bool
soft_races_are_watched(void)
{
    return __atomic_load_n(&softmetal_is_watching, __ATOMIC_RELAXED) != 0 &&
           !soft_process_is_forked();
}

/* What the calling thread knows. */
static soft_race_clock *
thread_clock(void)
{
    return handler_clock != NULL ? handler_clock : &cpu;
}

/* What the calling thread knows, to be passed on: without what the CPU does later. */
static soft_race_clock
pass_on_locked(void)
{
    soft_race_clock known = *thread_clock();
    if (handler_clock == NULL) {
        cpu.at[0] += 1;
    }
    return known;
}

/* ---- queues ---- */

soft_race_queue *
soft_race_queue_new(uint64_t serial)
{
    soft_race_queue *queue = NULL;
    pthread_mutex_lock(&lock);
    for (int index = 1; index < SOFT_RACE_COMPONENTS && queue == NULL; index++) {
        if (is_taken[index]) {
            continue;
        }
        queue = calloc(1, sizeof *queue);
        if (queue == NULL) {
            break;
        }
        is_taken[index] = true;
        queue->component = index;
        queue->serial = serial;
        queue->waited.at[index] = issued[index];
    }
    pthread_mutex_unlock(&lock);
    return queue;
}

void
soft_race_queue_free(soft_race_queue *queue)
{
    if (queue == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    is_taken[queue->component] = false;
    pthread_mutex_unlock(&lock);
    free(queue);
}

/* ---- the life of a command buffer ---- */

soft_race_work *
soft_race_work_new(void)
{
    if (!soft_races_are_watched()) {
        return NULL;
    }
    soft_race_work *work = calloc(1, sizeof *work);
    if (work == NULL) {
        soft_end_without_memory("what came before a commit");
    }
    pthread_mutex_lock(&lock);
    work->commit = pass_on_locked();
    pthread_mutex_unlock(&lock);
    return work;
}

void
soft_races_encoded(soft_pass *pass)
{
    if (!soft_races_are_watched() || pass->known != NULL) {
        return;
    }
    pass->known = calloc(1, sizeof *pass->known);
    /* mutant survives (dropped error): only test_no_memory.py's long tests watch races */
    if (pass->known == NULL) {
        soft_end_without_memory("what came before a command");
    }
    pthread_mutex_lock(&lock);
    *pass->known = pass_on_locked();
    pthread_mutex_unlock(&lock);
}

void
soft_races_begin(soft_race_work *work, soft_race_queue *queue, size_t pass_count)
{
    if (work == NULL || queue == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    work->queue = queue;
    work->first = issued[queue->component] + 1;
    work->pass_count = pass_count;
    issued[queue->component] += pass_count;
    soft_race_clock_join(&queue->commits, &work->commit);
    work->until = queue->commits;
    pthread_mutex_unlock(&lock);
}

/* What is known after a pass.  A queue without a component passes on all that there is: with
 * too many queues races are missed, and none is made up. */
static soft_race_clock
clock_after(const soft_race_work *work, uint64_t number)
{
    if (work->queue == NULL) {
        soft_race_clock all;
        memcpy(all.at, issued, sizeof all.at);
        all.at[0] = cpu.at[0];
        return all;
    }
    soft_race_clock clock = work->until;
    soft_race_clock_join(&clock, &work->queue->waited);
    clock.at[work->queue->component] = number;
    return clock;
}

/* What came before a use, as far as is known: for the shadow to ask. */
typedef struct viewpoint {
    const soft_race_clock *clock;
    int component;
    uint64_t number, before;
} viewpoint;

static bool
comes_before(const void *context, const soft_race_record *record)
{
    const viewpoint *here = context;
    if (here->clock->at[record->component] >= record->number) {
        return true;
    }
    if (record->component != here->component || here->component == 0) {
        return record->component == here->component;
    }
    if (record->is_tracked || record->number == here->number) {
        return true; /* Metal orders them; commands of one encoder run one after the other */
    }
    return soft_race_order_holds(here->before, record->number, here->number);
}

/* Compare a use with those before it, and remember it. */
static void
note_use(const soft_race_use *use, const viewpoint *here, soft_race_report *report)
{
    soft_race_record earlier;
    if (soft_race_shadow_use(&use->storage->shadow, &use->record, comes_before, here,
                             &earlier)) {
        soft_race_report_add(report, use->storage, &earlier, &use->record);
    }
}

static void
run_encoder(const soft_race_work *work, const soft_pass *pass, uint64_t number,
            soft_race_report *report)
{
    soft_race_queue *queue = work->queue;
    soft_race_clock clock = pass->known != NULL ? *pass->known : work->commit;
    soft_race_clock_join(&clock, &queue->waited);
    viewpoint here = {&clock, queue->component, number, 0};
    here.before = soft_race_order_learn(&queue->recent, queue->component, pass, number);
    soft_race_use use;
    for (size_t index = 0; index < pass->command_count; index++) {
        const soft_command *command = &pass->commands[index];
        for (int one = 0; one < soft_command_storage_count(command); one++) {
            if (soft_race_use_at(command, one, &use)) {
                use.record.component = queue->component;
                use.record.number = number;
                use.record.queue = queue->serial;
                note_use(&use, &here, report);
            }
        }
    }
    soft_race_order_note(&queue->recent, queue->component, pass, number, here.before);
}

void
soft_races_run(const soft_program *program, const soft_pass *pass)
{
    const soft_race_work *work = program->order;
    if (work == NULL || soft_process_is_forked()) {
        return;
    }
    soft_race_report report = {.is_found = false};
    uint64_t number = work->first + (uint64_t)(pass - program->passes);
    pthread_mutex_lock(&lock);
    if (pass->kind == SOFT_PASS_SIGNAL) {
        soft_race_clock clock = clock_after(work, number);
        soft_event_note_signal(pass->event, pass->value, &clock);
    }
    else if (work->queue != NULL && pass->kind == SOFT_PASS_WAIT) {
        soft_event_learn_signal(pass->event, pass->value, &work->queue->waited);
    }
    else if (work->queue != NULL) {
        run_encoder(work, pass, number, &report);
    }
    pthread_mutex_unlock(&lock);
    soft_race_report_make(&report);
}

void
soft_races_complete(soft_race_work *work)
{
    if (work == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    work->done = clock_after(work, work->first + work->pass_count - 1);
    soft_race_clock_join(&completed, &work->done);
    work->queue = NULL;
    pthread_mutex_unlock(&lock);
}

void
soft_races_enter_handlers(soft_race_work *work)
{
    handler_clock = work != NULL ? &work->done : NULL;
}

/* ---- the CPU ---- */

void
soft_races_cpu_waited_for_work(const soft_race_work *work)
{
    if (work != NULL && !soft_process_is_forked()) {
        pthread_mutex_lock(&lock);
        soft_race_clock_join(thread_clock(), &work->done);
        pthread_mutex_unlock(&lock);
    }
}

void
soft_races_cpu_waited_for_event(soft_event *event, uint64_t value)
{
    if (soft_races_are_watched()) {
        pthread_mutex_lock(&lock);
        soft_event_learn_signal(event, value, thread_clock());
        pthread_mutex_unlock(&lock);
    }
}

void
soft_races_cpu_signals(soft_event *event, uint64_t value)
{
    if (soft_races_are_watched()) {
        pthread_mutex_lock(&lock);
        soft_race_clock known = pass_on_locked();
        soft_event_note_signal(event, value, &known);
        pthread_mutex_unlock(&lock);
    }
}

void
soft_races_cpu_waited_for_all(void)
{
    if (soft_races_are_watched()) {
        pthread_mutex_lock(&lock);
        soft_race_clock_join(thread_clock(), &completed);
        pthread_mutex_unlock(&lock);
    }
}

void
soft_races_cpu_releases(soft_storage *storage)
{
    if (!soft_races_are_watched()) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (storage != NULL && storage->released == NULL) {
        storage->released = calloc(1, sizeof *storage->released);
        /* mutant survives (dropped error): only test_no_memory.py's long tests watch races */
        if (storage->released == NULL) {
            soft_end_without_memory("what came before the use of a buffer");
        }
    }
    soft_race_clock *place = storage != NULL ? storage->released : &left;
    soft_race_clock known = pass_on_locked();
    soft_race_clock_join(place, &known);
    pthread_mutex_unlock(&lock);
}

void
soft_races_cpu_acquires(soft_storage *storage)
{
    if (soft_races_are_watched()) {
        pthread_mutex_lock(&lock);
        const soft_race_clock *place = storage != NULL ? storage->released : &left;
        if (place != NULL) {
            soft_race_clock_join(thread_clock(), place);
        }
        pthread_mutex_unlock(&lock);
    }
}

void
soft_races_forget_uses(soft_storage *storage)
{
    pthread_mutex_lock(&lock);
    soft_race_shadow_free(storage->shadow);
    storage->shadow = NULL;
    pthread_mutex_unlock(&lock);
}

void
soft_races_cpu_uses(soft_storage *storage, size_t offset, size_t nbytes, bool is_written)
{
    if (storage->mode == SOFT_PRIVATE || !soft_races_are_watched() || handler_clock != NULL) {
        return;
    }
    soft_race_use use = {.storage = storage,
                         .record = {.start = offset,
                                    .end = offset + nbytes,
                                    .is_written = is_written,
                                    .is_tracked = storage->is_tracked}};
    soft_race_report report = {.is_found = false};
    pthread_mutex_lock(&lock);
    use.record.number = cpu.at[0];
    bool is_old = soft_race_shadow_has_last(storage->shadow, &use.record);
    pthread_mutex_unlock(&lock);
    if (is_old) {
        return; /* saves the stack, which takes most of the time */
    }
    use.record.site = soft_call_site_intern();
    pthread_mutex_lock(&lock);
    viewpoint here = {&cpu, 0, cpu.at[0], 0};
    use.record.number = here.number;
    note_use(&use, &here, &report);
    pthread_mutex_unlock(&lock);
    soft_race_report_make(&report);
}
