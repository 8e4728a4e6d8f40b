/* race_pass.h: one pass of a queue: what its commands use, which earlier passes come before it, and a
 * report on two uses.
 *
 * Owns:    nothing: a queue has its window.
 * Calls:   program.h, race_shadow.h, soft_storage.h, validation.h.
 * Threads: behind the lock of races.c; soft_race_report_make with no lock held.
 * Note:    a pass comes after an earlier one of its queue if a fence or a tracked buffer says
 *          so, or if it comes after a third that does; beyond the window all are taken to be
 *          in order.
 */
#ifndef SOFT_RACE_PASS_H
#define SOFT_RACE_PASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "softmetal/gpu/program.h"
#include "softmetal/gpu/race_shadow.h"
#include "softmetal/gpu/soft_storage.h"

typedef struct soft_race_use {
    soft_storage *storage; /* borrowed */
    soft_race_record record;
} soft_race_use;

/* What one command does with the storage at an index (soft_command_storage): of a dispatch every buffer that
 * is bound, from the offset on, or made resident, since nothing says what a kernel leaves alone, and of a
 * texture, or a copy to or from one, also the bytes between its rows.  Who uses it stays open.  False: nothing is there. */
bool soft_race_use_at(const soft_command *command, int index, soft_race_use *use);

/* ---- the order of the passes of one queue ---- */

#define SOFT_RACE_WINDOW 64

typedef struct soft_race_recent {
    struct {
        uint64_t number;
        uint64_t before; /* bit n: the pass number - 1 - n comes before it */
    } passes[SOFT_RACE_WINDOW];
} soft_race_recent;

/* Which passes come before the one with `number`, as the bits of `before`. */
uint64_t soft_race_order_learn(const soft_race_recent *recent, int component,
                               const soft_pass *pass, uint64_t number);
/* The pass has run: later ones are compared with it. */
void soft_race_order_note(soft_race_recent *recent, int component, const soft_pass *pass,
                          uint64_t number, uint64_t before);
bool soft_race_order_holds(uint64_t before, uint64_t earlier, uint64_t number);

/* ---- what is said of two uses of the same bytes that nothing orders ---- */

typedef struct soft_race_report {
    bool is_found; /* else the rest means nothing */
    soft_race_record earlier, later;
    size_t nbytes; /* of the buffer */
    char label[SOFT_LABEL_SIZE];
} soft_race_report;

/* Two uses of `storage`; if a race is in the report already, that one stays. */
void soft_race_report_add(soft_race_report *report, soft_storage *storage,
                          const soft_race_record *earlier, const soft_race_record *later);
/* Report it, if there is one. */
void soft_race_report_make(const soft_race_report *report);

#endif /* SOFT_RACE_PASS_H */
