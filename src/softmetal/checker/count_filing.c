/* count_filing.c: what a launch has counted, copied from the image for whoever asked.
 *
 * Owns:    nothing: counts.h takes it over.
 * Calls:   counts.h.
 * Threads: the OS thread that runs the launch.
 */
#include "softmetal/checker/count_state.h"

#include <stdlib.h>
#include <string.h>

/* Copies of all that lies in the image.  False: there is no memory. */
static bool
copy_memories(const soft_check *check, soft_counts *counts)
{
    const soft_count *count = check->count;
    counts->memories = calloc(count->memory_count + 1, sizeof *counts->memories);
    if (counts->memories == NULL) {
        return false;
    }
    bool is_whole = true;
    counts->memory_count = count->memory_count;
    for (size_t i = 0; i < count->memory_count; i++) {
        const soft_count_memory *memory = &count->memories[i];
        soft_counts_memory *facts = &counts->memories[i];
        *facts = memory->facts;
        facts->name = strdup(facts->name);
        is_whole &= facts->name != NULL;
        if (!facts->is_threadgroup) {
            facts->distinct_read = soft_count_distinct(&memory->read, facts->nbytes);
            facts->distinct_written = soft_count_distinct(&memory->written, facts->nbytes);
        }
    }
    return is_whole;
}

static bool
copy_rows(const soft_check *check, soft_counts *counts)
{
    const soft_watch *watch = check->watch;
    size_t number = 0;
    for (const soft_counted *site = watch->counted; site < watch->counted_end; site++) {
        for (const soft_count_row *row = site->rows; row != NULL; row = row->next) {
            number += 1;
        }
    }
    counts->rows = calloc(number + 1, sizeof *counts->rows);
    if (counts->rows == NULL) {
        return false;
    }
    bool is_whole = true;
    for (const soft_counted *site = watch->counted; site < watch->counted_end; site++) {
        for (const soft_count_row *row = site->rows; row != NULL; row = row->next) {
            soft_counts_row *sums = &counts->rows[counts->row_count++];
            *sums = row->sums;
            sums->file = strdup(sums->file);
            is_whole &= sums->file != NULL;
        }
    }
    return is_whole;
}

static bool
copy_places(const soft_count_places *places, soft_counts_place **list, size_t *count)
{
    *list = calloc(places->count + 1, sizeof **list);
    if (*list == NULL) {
        return false;
    }
    *count = places->count;
    memcpy(*list, places->list, places->count * sizeof **list);
    return true;
}

static bool
copy_rest(const soft_check *check, soft_counts *counts)
{
    const soft_count *count = check->count;
    const soft_watch *watch = check->watch;
    size_t blocks = (size_t)(watch->executions_end - watch->executions);
    counts->kernel = strdup(check->launch.kernel);
    counts->image_path = strdup(check->launch.image_path);
    counts->operations = watch->operations == NULL ? NULL : strdup(watch->operations);
    counts->executions = calloc(blocks + 1, sizeof *counts->executions);
    if (counts->kernel == NULL || counts->image_path == NULL || counts->executions == NULL ||
        (watch->operations != NULL && counts->operations == NULL) ||
        !copy_places(&count->barriers, &counts->barriers, &counts->barrier_count) ||
        !copy_places(&count->meetings, &counts->meetings, &counts->meeting_count)) {
        return false;
    }
    counts->execution_count = blocks;
    if (blocks != 0) {
        memcpy(counts->executions, watch->executions, blocks * sizeof *counts->executions);
    }
    return true;
}

void
soft_count_file(const soft_check *check)
{
    const soft_count *count = check->count;
    soft_counts *counts = calloc(1, sizeof *counts);
    if (counts == NULL) {
        return;
    }
    *counts = (soft_counts){
        .tag = check->launch.launch->count_tag,
        .threads = count->threads,
        .groups = count->groups,
        .simdgroups = count->simdgroups,
        .threadgroup_nbytes = count->threadgroup_nbytes,
    };
    memcpy(counts->grid, check->launch.launch->grid, sizeof counts->grid);
    memcpy(counts->group, check->launch.launch->group, sizeof counts->group);
    if (copy_memories(check, counts) && copy_rows(check, counts) && copy_rest(check, counts)) {
        soft_counts_file(counts);
    }
    else {
        soft_counts_free(counts);
    }
}
