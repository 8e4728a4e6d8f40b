/* race_use.h: one use of a buffer, by a command of a queue or by the CPU.
 *
 * Owns:    nothing.
 * Calls:   program.h, race_shadow.h, soft_storage.h.
 * Threads: behind the lock of races.c.
 */
#ifndef SOFT_RACE_USE_H
#define SOFT_RACE_USE_H

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

#endif /* SOFT_RACE_USE_H */
