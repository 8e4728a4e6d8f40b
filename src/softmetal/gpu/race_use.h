/* race_use.h: one use of a buffer, by a command of a queue or by the CPU; a report on two of them.
 *
 * Owns:    nothing.
 * Calls:   program.h, race_shadow.h, soft_storage.h, validation.h.
 * Threads: behind the lock of races.c; soft_race_report_make with no lock held.
 */
#ifndef SOFT_RACE_USE_H
#define SOFT_RACE_USE_H

#include <stdbool.h>
#include <stddef.h>

#include "softmetal/gpu/program.h"
#include "softmetal/gpu/race_shadow.h"
#include "softmetal/gpu/soft_storage.h"

typedef struct soft_race_use {
    soft_storage *storage; /* borrowed */
    soft_race_record record;
} soft_race_use;

#define SOFT_RACE_USES SOFT_MOST_ARGUMENTS /* of one command, at most */

/* The uses of one command: one or two; of a dispatch every buffer that is bound, from the offset on,
 * since nothing says what a kernel leaves alone.  Who uses them stays open. */
size_t soft_race_use_list(const soft_command *command, soft_race_use *uses);

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

#endif /* SOFT_RACE_USE_H */
