/* storage.h: the bytes of one buffer, as the CPU and as the GPU see them.
 *
 * Owns:      one or two blocks of memory, counted; command buffers and the buffer keep it
 * alive. Threads:   any; the bytes themselves are ordered by whoever uses them. Invariant:
 * shared: cpu == gpu; private: cpu == NULL; managed: two blocks that only soft_storage_upload
 * and soft_storage_download make equal.
 */
#ifndef SOFT_STORAGE_H
#define SOFT_STORAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "softmetal/race_clock.h"
#include "softmetal/race_shadow.h"

typedef enum {
    SOFT_SHARED,
    SOFT_MANAGED,
    SOFT_PRIVATE
} soft_storage_mode; /* as MTLStorageMode */

#define SOFT_LABEL_SIZE 64

typedef struct soft_storage {
    long references;
    soft_storage_mode mode;
    bool is_tracked;   /* hazards on it order GPU work */
    bool is_foreign;   /* the CPU block belongs to the caller (bytesNoCopy) */
    size_t nbytes;     /* > 0 */
    char *cpu;         /* NULL for private */
    char *gpu;         /* never NULL */
    size_t *account;   /* borrowed for ever: where the device counts its bytes */
    long pending_uses; /* committed command buffers that have not completed */
    int running_uses;  /* workers that touch its bytes at this moment */
    int is_orphan;     /* the MTLBuffer is gone */
    /* owned; where, for reports: written before is_orphan, or NULL */
    char *made_at;
    int purgeable;                /* a MTLPurgeableState, never KeepCurrent */
    soft_race_shadow *shadows[2]; /* owned; NULL: never used */
    soft_race_clock *released;    /* owned; what softmetal_host_release left here */
    char label[SOFT_LABEL_SIZE];  /* behind a lock: soft_storage_set_label, _copy_label */
} soft_storage;

/* Owned (+1), or NULL when there is no memory.  `bytes` NULL: zeros (or a pattern, when the
 * setting SOFTMETAL_POISON says so).  `no_copy` makes `bytes` the CPU block itself. */
soft_storage *soft_storage_new(soft_storage_mode mode, size_t nbytes, const void *bytes,
                               bool no_copy, size_t *account);
soft_storage *soft_storage_retain(soft_storage *storage);
void soft_storage_release(soft_storage *storage);

/* The buffer is gone.  Returns when no worker touches foreign bytes any more. */
void soft_storage_orphan(soft_storage *storage);

/* CPU to GPU.  False: the bytes were the same. */
bool soft_storage_upload(soft_storage *storage, size_t offset, size_t nbytes);
void soft_storage_download(soft_storage *storage); /* GPU to CPU */

/* What reports call it; shortened where it is long.  `label` is an array of SOFT_LABEL_SIZE;
 * returns it. */
void soft_storage_set_label(soft_storage *storage, const char *label);
const char *soft_storage_copy_label(soft_storage *storage, char *label);

/* Overwrite the contents, except bytes that belong to the caller. */
void soft_storage_discard(soft_storage *storage);

/* Bytes that the system sets aside for it. */
size_t soft_storage_footprint(const soft_storage *storage);
size_t soft_storage_page_size(void);

#endif /* SOFT_STORAGE_H */
