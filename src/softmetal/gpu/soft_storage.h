/* soft_storage.h: the bytes of one buffer: one block, which the CPU reaches too unless it is private.
 *
 * Owns:    the block, unless it is the caller's; counted, and kept alive by the MTLBuffer and by
 *          the command buffers that name it.
 * Calls:   race_shadow.h and fresh.h, to free what the uses of the block left.
 * Threads: any; the bytes themselves are ordered by their users.
 */
#ifndef SOFT_STORAGE_H
#define SOFT_STORAGE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "softmetal/checker/fresh.h"
#include "softmetal/gpu/race_shadow.h"

typedef enum {
    SOFT_SHARED,
    SOFT_MANAGED,
    SOFT_PRIVATE
} soft_storage_mode; /* as MTLStorageMode */

#define SOFT_LABEL_SIZE 64

/* Its life: commit adds to pending_uses, and completion takes that back.  The worker that runs a
 * command counts in running_uses meanwhile.  When the MTLBuffer goes it sets is_orphan, and waits for
 * running_uses to be 0 if the bytes are foreign. */
typedef struct soft_storage {
    long references;
    soft_storage_mode mode;
    bool is_tracked;                /* Metal orders the GPU work that uses it */
    bool is_guarded;                /* pages that nobody may touch follow the block */
    bool is_foreign;                /* the block belongs to the caller (bytesNoCopy) */
    size_t nbytes;                  /* > 0 */
    char *bytes;                    /* never NULL */
    size_t *account;                /* borrowed for ever: where the device counts its bytes */
    long pending_uses;              /* committed command buffers that have not completed */
    int running_uses;               /* workers that touch its bytes at this moment */
    int is_orphan;                  /* the MTLBuffer is gone */
    char *made_at;                  /* owned; for reports: written before is_orphan, or NULL */
    int purgeable;                  /* a MTLPurgeableState, never KeepCurrent */
    soft_race_shadow *shadow;       /* owned; NULL: never used */
    soft_fresh *fresh;              /* owned, atomic; NULL: all bytes count as written */
    LIST_ENTRY(soft_storage) links; /* of all */
    struct soft_race_clock *released; /* owned; what softmetal_host_release left here */
    char label[SOFT_LABEL_SIZE]; /* behind a lock: use soft_storage_set_label, _copy_label */
} soft_storage;

/* Owned (+1), or NULL when there is no memory.  Holds a copy of `bytes`; zeros if that is NULL,
 * or a pattern if the setting SOFTMETAL_POISON says so.  `no_copy` makes `bytes` the block
 * itself. */
soft_storage *soft_storage_new(soft_storage_mode mode, size_t nbytes, const void *bytes,
                               bool no_copy, size_t *account);
soft_storage *soft_storage_retain(soft_storage *storage);
void soft_storage_release(soft_storage *storage);

/* The MTLBuffer is gone.  Returns when no worker touches foreign bytes any more. */
void soft_storage_orphan(soft_storage *storage);

/* The name of the buffer in reports, shortened where it is long.  `label` is an array of
 * SOFT_LABEL_SIZE; soft_storage_copy_label returns it. */
void soft_storage_set_label(soft_storage *storage, const char *label);
const char *soft_storage_copy_label(soft_storage *storage, char *label);

/* Nobody has written the first `nbytes`, or they count as written (0): nobody uses the buffer. */
void soft_storage_renew(soft_storage *storage, size_t nbytes, soft_writers writers);
/* Somebody may have written these. */
void soft_storage_written(soft_storage *storage, size_t offset, size_t nbytes);

/* Overwrite the contents, except bytes that belong to the caller. */
void soft_storage_discard(soft_storage *storage);

/* The buffer that has the byte at an address: its length, and in `*base` the address of its first byte.  0: no
 * buffer has it. */
uint64_t soft_storage_find(uint64_t address, uint64_t *base);
extern pthread_mutex_t soft_storage_mutex; /* fork holds it */

size_t soft_storage_page_size(void);

#endif /* SOFT_STORAGE_H */
