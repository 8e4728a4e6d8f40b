/* races.h: what happens before what, and accesses to the same bytes that nothing orders.
 *
 * Owns:      the CPU's clock and the numbers given to queues, behind one lock that is taken
 *            last.
 * Calls:     call_site.h, event.h, program.h, soft_storage.h, and the files named race_...
 * Threads:   any; nothing is done in a forked child.
 * Model:     vector clocks.  One component is the CPU, whose threads count as one line of
 *            events (their order among themselves is ThreadSanitizer's matter); the others are
 *            queues, which count their passes.  Order comes from commit, completion, events,
 *            fences, tracked buffers and what softmetal_host_... tells, never from time: what
 *            is reported is reported in every run in which both accesses happen.
 * Invariant: see event.h.
 */
#ifndef SOFT_RACES_H
#define SOFT_RACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct soft_race_queue soft_race_queue; /* one queue's passes */
typedef struct soft_race_work soft_race_work;   /* one committed command buffer */

struct soft_event;
struct soft_pass;
struct soft_program;
struct soft_storage;

bool soft_races_are_watched(void);

/* Owned (+1), or NULL: no memory, or too many queues.  `serial` names it in reports. */
soft_race_queue *soft_race_queue_new(uint64_t serial);
void soft_race_queue_free(soft_race_queue *queue); /* NULL is allowed, as in all below */

/* ---- the life of a command buffer ---- */

/* At commit: what the calling thread knows.  Malloc'ed, or NULL. */
soft_race_work *soft_race_work_new(void);
/* The same for one pass, before the commit. */
void soft_races_encoded(struct soft_pass *pass);
/* On the worker, in the order of the queue. */
void soft_races_begin(soft_race_work *work, soft_race_queue *queue, size_t pass_count);
/* Before a pass does its work, after its wait, before its signal. */
void soft_races_run(const struct soft_program *program, const struct soft_pass *pass);
/* All of its passes are over. */
void soft_races_complete(soft_race_work *work);
/* Handlers run on this thread until it is called with NULL: they know what `work` has done. */
void soft_races_enter_handlers(soft_race_work *work);

/* ---- the CPU ---- */

void soft_races_cpu_waited_for_work(const soft_race_work *work);
void soft_races_cpu_waited_for_event(struct soft_event *event, uint64_t value);
void soft_races_cpu_signals(struct soft_event *event, uint64_t value);
void soft_races_cpu_waited_for_all(void);
/* NULL: at no buffer in particular. */
void soft_races_cpu_releases(struct soft_storage *storage);
void soft_races_cpu_acquires(struct soft_storage *storage);
void soft_races_forget_uses(struct soft_storage *storage);
void soft_races_cpu_uses(struct soft_storage *storage, size_t offset, size_t nbytes,
                         bool is_written);

#endif /* SOFT_RACES_H */
