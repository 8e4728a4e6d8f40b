/* race_report.h: what is said of two uses of the same bytes that nothing orders.
 *
 * Owns:    nothing; a report is a value.
 * Calls:   race_shadow.h, soft_storage.h, validation.h.
 * Threads: any; soft_race_report_make with no lock held.
 */
#ifndef SOFT_RACE_REPORT_H
#define SOFT_RACE_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "softmetal/gpu/race_shadow.h"
#include "softmetal/gpu/soft_storage.h"

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

#endif /* SOFT_RACE_REPORT_H */
