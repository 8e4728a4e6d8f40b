/* race_history.c: a list of values, each with a clock; see race_history.h.
 *
 * Owns:      the list.
 * Threads:   see race_history.h.
 * Invariant: values grow.
 */
#include "softmetal/gpu/race_history.h"

#include <stddef.h>
#include <stdlib.h>

#define MOST_VALUES 256 /* of an event that are remembered apart */

struct soft_race_history {
    size_t count;
    struct {
        uint64_t value;
        soft_race_clock clock;
    } entries[MOST_VALUES];
};

void
soft_race_history_free(soft_race_history *history)
{
    free(history);
}

/* Half of the values go: a wait for one of them counts as a wait for the next that is left,
 * which knows more.  So a race can be missed, and none is made up. */
static void
thin_out(soft_race_history *history)
{
    size_t kept = 0;
    for (size_t index = 1; index < history->count; index += 2) {
        history->entries[kept] = history->entries[index];
        kept += 1;
    }
    history->count = kept;
}

void
soft_race_history_append(soft_race_history **place, uint64_t value,
                         const soft_race_clock *clock)
{
    if (*place == NULL) {
        *place = calloc(1, sizeof **place);
    }
    soft_race_history *history = *place;
    if (history == NULL ||
        (history->count > 0 && history->entries[history->count - 1].value >= value)) {
        return; /* the value stays as it is, and nobody wakes */
    }
    if (history->count == MOST_VALUES) {
        thin_out(history);
    }
    history->entries[history->count].value = value;
    history->entries[history->count].clock = *clock;
    history->count += 1;
}

void
soft_race_history_learn(const soft_race_history *history, uint64_t value,
                        soft_race_clock *clock)
{
    if (history == NULL || value == 0) {
        return;
    }
    size_t low = 0, high = history->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (history->entries[middle].value < value) {
            low = middle + 1;
        }
        else {
            high = middle;
        }
    }
    if (low < history->count) {
        soft_race_clock_join(clock, &history->entries[low].clock);
    }
}
