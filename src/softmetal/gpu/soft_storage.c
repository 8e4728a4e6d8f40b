/* soft_storage.c: allocates the bytes of buffers.
 *
 * Owns:    the blocks.  Small ones come from the heap, so that a sanitizer sees the end of
 *          each; large ones are mapped, so that a page costs nothing before it is touched.
 * Calls:   mmap, posix_memalign, settings.h, race_shadow.h.
 * Threads: any.
 */
#include "softmetal/gpu/soft_storage.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "softmetal/settings.h"

#define HEAP_MOST 32768 /* bytes; larger blocks are mapped */
#define POISON 0xCD

size_t
soft_storage_page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t
round_to_pages(size_t nbytes)
{
    size_t page = soft_storage_page_size();
    return (nbytes + page - 1) / page * page;
}

/* A page without access follows each mapped block, so that overruns fault. */
static size_t
mapped_size(size_t nbytes)
{
    return round_to_pages(nbytes) + soft_storage_page_size();
}

static char *
allocate_block(size_t nbytes)
{
    if (nbytes <= HEAP_MOST) {
        void *block = NULL;
        if (posix_memalign(&block, soft_storage_page_size(), nbytes) != 0) {
            return NULL;
        }
        return memset(block, 0, nbytes);
    }
    void *block = mmap(NULL, mapped_size(nbytes), PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    /* mutant survives (condition never): mprotect refuses it as well */
    if (block == MAP_FAILED) {
        return NULL;
    }
    if (mprotect(block, round_to_pages(nbytes), PROT_READ | PROT_WRITE) != 0) {
        munmap(block, mapped_size(nbytes));
        return NULL;
    }
    return block;
}

static void
free_block(char *block, size_t nbytes)
{
    if (block == NULL) {
        return;
    }
    if (nbytes <= HEAP_MOST) {
        free(block);
    }
    else {
        munmap(block, mapped_size(nbytes));
    }
}

/* Memory of the caller's is not the device's. */
static size_t
charged_nbytes(const soft_storage *storage)
{
    return storage->is_foreign ? 0 : round_to_pages(storage->nbytes);
}

/* False, with nothing charged, if the device has a limit and would pass it. */
static bool
charge_account(soft_storage *storage)
{
    size_t nbytes = charged_nbytes(storage);
    size_t sum = __atomic_add_fetch(storage->account, nbytes, __ATOMIC_RELAXED);
    uint64_t limit = soft_settings_get(SOFT_MEMORY_LIMIT);
    if (limit != 0 && sum > limit) {
        __atomic_sub_fetch(storage->account, nbytes, __ATOMIC_RELAXED);
        return false;
    }
    return true;
}

void
soft_storage_discard(soft_storage *storage)
{
    if (!storage->is_foreign) {
        memset(storage->bytes, POISON, storage->nbytes);
    }
}

soft_storage *
soft_storage_new(soft_storage_mode mode, size_t nbytes, const void *bytes, bool no_copy,
                 size_t *account)
{
    soft_storage *storage = calloc(1, sizeof *storage);
    if (storage == NULL) {
        return NULL;
    }
    storage->references = 1;
    storage->mode = mode;
    storage->nbytes = nbytes;
    storage->is_foreign = no_copy;
    storage->account = account;
    if (!charge_account(storage)) {
        free(storage);
        return NULL;
    }
    storage->bytes = no_copy ? (char *)bytes : allocate_block(nbytes);
    if (storage->bytes == NULL) {
        soft_storage_release(storage);
        return NULL;
    }
    if (bytes != NULL && !no_copy) {
        memcpy(storage->bytes, bytes, nbytes);
    }
    if (bytes == NULL && soft_settings_get(SOFT_POISON) != 0) {
        soft_storage_discard(storage);
    }
    return storage;
}

soft_storage *
soft_storage_retain(soft_storage *storage)
{
    __atomic_add_fetch(&storage->references, 1, __ATOMIC_RELAXED);
    return storage;
}

void
soft_storage_release(soft_storage *storage)
{
    if (storage == NULL || __atomic_sub_fetch(&storage->references, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }
    __atomic_sub_fetch(storage->account, charged_nbytes(storage), __ATOMIC_RELAXED);
    if (!storage->is_foreign) {
        free_block(storage->bytes, storage->nbytes);
    }
    soft_race_shadow_free(storage->shadow);
    free(storage->released);
    free(storage->made_at);
    free(storage);
}

void
soft_storage_orphan(soft_storage *storage)
{
    __atomic_store_n(&storage->is_orphan, 1, __ATOMIC_SEQ_CST);
    while (storage->is_foreign &&
           __atomic_load_n(&storage->running_uses, __ATOMIC_SEQ_CST) > 0) {
        sched_yield(); /* the caller is about to free the bytes under a running command */
    }
}

static pthread_mutex_t label_lock = PTHREAD_MUTEX_INITIALIZER;

void
soft_storage_set_label(soft_storage *storage, const char *label)
{
    pthread_mutex_lock(&label_lock);
    snprintf(storage->label, sizeof storage->label, "%s", label);
    pthread_mutex_unlock(&label_lock);
}

const char *
soft_storage_copy_label(soft_storage *storage, char *label)
{
    pthread_mutex_lock(&label_lock);
    memcpy(label, storage->label, SOFT_LABEL_SIZE);
    pthread_mutex_unlock(&label_lock);
    return label;
}
