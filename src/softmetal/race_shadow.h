/* race_shadow.h: the last uses of each byte of a buffer.
 *
 * Owns:    the records of a block; a report's texts.
 * Calls:   storage.h, validation.h, call_site.h.
 * Threads: behind the lock of races.c, but for soft_race_report_make.
 */
#ifndef SOFT_RACE_SHADOW_H
#define SOFT_RACE_SHADOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "softmetal/races.h"
#include "softmetal/storage.h"

/* One use that later ones are compared with. */
typedef struct soft_race_record {
    size_t start, end; /* bytes */
    int component;
    uint64_t number;
    uint64_t queue; /* its name in reports; 0: the CPU */
    bool is_written, is_tracked;
    const soft_call_site *site; /* borrowed for ever */
} soft_race_record;

typedef struct soft_race_use {
    soft_storage *storage;
    bool is_gpu_block; /* managed storage has two; without effect on shared storage */
    bool is_written;
    size_t start, end;
    int component;
    uint64_t number, queue;
    const soft_call_site *site;
} soft_race_use;

typedef struct soft_race_report {
    bool is_found;
    soft_race_record earlier, later;
    size_t nbytes;
    char label[SOFT_LABEL_SIZE];
} soft_race_report;

/* Compare a use with those before it, then remember it.  The first race goes to `*report`,
 * unless there is one in it. */
void soft_race_shadow_use(const soft_race_use *use,
                          bool (*comes_before)(const void *context,
                                               const soft_race_record *record),
                          const void *context, soft_race_report *report);
/* Is it the same as the last one, which has left nothing to compare and to remember? */
bool soft_race_shadow_has_last(const soft_race_use *use);
/* The passes of one queue that Metal's hazard tracking puts before a use.  At most `capacity`;
 * returns how many. */
size_t soft_race_shadow_list(const soft_race_use *use, int component, uint64_t *numbers,
                             size_t capacity);
/* Says it, if there is one.  No lock is held. */
void soft_race_report_make(const soft_race_report *report);

#endif /* SOFT_RACE_SHADOW_H */
