/* program.h: what one command buffer tells the GPU to do, and doing it.
 *
 * Owns:      the passes, and a reference to every storage, event and fence they name.
 * Calls:     soft_storage.h, event.h.
 * Threads:   written by the encoding thread, then read by the queue's worker: one at a time.
 * Invariant: from soft_program_begin to soft_program_clear each bound storage counts the
 *            program in `pending_uses`.
 */
#ifndef SOFT_PROGRAM_H
#define SOFT_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "softmetal/call_site.h"
#include "softmetal/gpu/event.h"
#include "softmetal/gpu/kernel.h"
#include "softmetal/gpu/soft_storage.h"

typedef enum { SOFT_COPY, SOFT_COPY_BOX, SOFT_FILL, SOFT_MIP, SOFT_DISPATCH } soft_command_kind;

/* What a copy to or from a texture moves: rows that lie apart. */
typedef struct soft_box {
    size_t row_nbytes, rows, images;
    size_t source_row, source_image, destination_row,
        destination_image; /* from one to the next */
} soft_box;

typedef struct soft_command {
    soft_command_kind kind;
    uint8_t value;                      /* of a fill */
    soft_storage *source, *destination; /* borrowed from the program's `bound` */
    size_t source_offset, destination_offset, nbytes;
    const soft_call_site *site; /* who encoded it: borrowed for ever; NULL: not known */
    soft_dispatch *dispatch;    /* owned; a dispatch has this instead of buffers and bytes */
    soft_box *box;              /* owned; of SOFT_COPY_BOX, which has no nbytes */
    soft_pixels *pixels;        /* owned (+1); of SOFT_MIP, whose destination has them */
} soft_command;

/* A program is a list of passes, in the order in which they were encoded:
 *
 *     soft_program
 *       passes[] ---> [ encoder ] [ signal ] [ wait ] [ encoder ] ...
 *                       |           |          |
 *                       |           +----------+---> event, value
 *                       |
 *                       +---> awaited[]   fences that it waits for
 *                       +---> commands[]  copies, fills, ...: one after the other
 *                       +---> updated[]   fences that it opens when it is done
 *
 *       bound[] ----> every storage that a command names, +1 each
 */
typedef enum { SOFT_PASS_ENCODER, SOFT_PASS_SIGNAL, SOFT_PASS_WAIT } soft_pass_kind;

typedef struct soft_pass {
    soft_pass_kind kind;
    soft_command *commands;
    size_t command_count, command_capacity;
    soft_event *event; /* of a signal or wait: owned (+1) */
    uint64_t value;
    soft_event **updated, **awaited; /* fences, as tokens: owned (+1) each */
    size_t updated_count, awaited_count;
    struct soft_race_clock
        *known; /* owned; what came before it; NULL: what did before the commit */
    /* the worker's own */
    bool is_done, has_failed;
    uint64_t deadline_ns; /* of a wait that others may overtake; 0: it has not begun */
} soft_pass;

typedef struct soft_program {
    soft_pass *passes;
    size_t pass_count, pass_capacity;
    soft_storage **bound;
    size_t bound_count, bound_capacity;
    bool is_begun;
    struct soft_race_work
        *order; /* borrowed from the command buffer; NULL: races are not watched */
} soft_program;

/* Each returns NULL or false when there is no memory, with the program as it was.  A pass is
 * borrowed until the next pass is added. */
soft_pass *soft_program_add_pass(soft_program *program, soft_pass_kind kind);
bool soft_program_add_command(soft_program *program, soft_pass *pass, soft_command command);
bool soft_program_add_event(soft_program *program, soft_pass_kind kind, soft_event *event,
                            uint64_t value);
bool soft_pass_add_fence(soft_event ***fences, size_t *count, soft_event *fence);

void soft_program_begin(soft_program *program); /* it is committed: nothing is added any more */
void soft_program_clear(soft_program *program);

/* The storages that a command names, at the indices below soft_command_storage_count.  An entry
 * may be NULL. */
soft_storage *soft_command_storage(const soft_command *command, int index, bool *is_written);
int soft_command_storage_count(const soft_command *command);

/* Lets go of what it owns. */
void soft_command_clear(const soft_command *command);

typedef enum { SOFT_RUN_DONE, SOFT_RUN_BUFFER_GONE, SOFT_RUN_KERNEL_STOPPED } soft_run_end;

/* Do the work of one command now.  SOFT_RUN_KERNEL_STOPPED: `*text` says why, malloc'ed; NULL: there
 * is no memory for it. */
soft_run_end soft_command_run(const soft_command *command, char **text);

#endif /* SOFT_PROGRAM_H */
