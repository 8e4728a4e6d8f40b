/* soft_storage.c: allocates the bytes of buffers.
 *
 * Owns:    the blocks.  They are mapped, with 1 MiB behind them that nobody may touch: a kernel that
 *          passes the end of the last page stops there, also where another of its threads runs
 *          first.  With many buffers the small ones come from the heap, and the large ones have no
 *          guard, for a process may have 65530 mappings; and small ones do under
 *          AddressSanitizer, which sees the end of each.  Some small ones stay for the next buffer:
 *          to map and unmap takes longer than most of torch's operators.
 * Calls:   mmap, posix_memalign, settings.h, race_shadow.h, fresh.h.
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

#define HEAP_MOST 32768 /* bytes; larger blocks are always mapped */
#define GUARD_NBYTES ((size_t)1 << 20)
#define HUGE_LEAST \
    ((size_t)4 \
     << 20) /* bytes, as in NumPy: a matrix's column has a page of 4 KiB for each item */
#define GUARDED_MOST 8192 /* blocks, each two mappings; later ones join their neighbours' */
#ifdef __SANITIZE_ADDRESS__
#define MAPS_SMALL 0
#else
#define MAPS_SMALL 1
#endif
#define POISON 0xCD
#define SPARE_PAGES 4 /* blocks of up to so many pages stay */
#define SPARE_MOST 64 /* of each size: what torch lets go with one command buffer */

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

static int guarded_count; /* atomic */

static bool
take_guard(void)
{
    if (__atomic_add_fetch(&guarded_count, 1, __ATOMIC_RELAXED) <= GUARDED_MOST) {
        return true;
    }
    __atomic_sub_fetch(&guarded_count, 1, __ATOMIC_RELAXED);
    return false;
}

static void
give_guard_back(void)
{
    __atomic_sub_fetch(&guarded_count, 1, __ATOMIC_RELAXED);
}

static char *
map_block(size_t nbytes, bool is_guarded)
{
    size_t guard = is_guarded ? GUARD_NBYTES : 0;
    int access = is_guarded ? PROT_NONE : PROT_READ | PROT_WRITE;
    void *block = mmap(NULL, round_to_pages(nbytes) + guard, access,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    /* mutant survives (condition never): mprotect refuses it as well */
    if (block == MAP_FAILED) {
        return NULL;
    }
    if (is_guarded && mprotect(block, round_to_pages(nbytes), PROT_READ | PROT_WRITE) != 0) {
        munmap(block, round_to_pages(nbytes) + guard);
        return NULL;
    }
    if (nbytes >= HUGE_LEAST) {
        madvise(block, round_to_pages(nbytes), MADV_HUGEPAGE); /* a wish */
    }
    return block;
}

/* Guarded blocks that nobody has, by their pages; each place is taken and filled at once. */
static char *spare[SPARE_PAGES][SPARE_MOST];

static char **
spare_of(size_t nbytes)
{
    size_t pages = round_to_pages(nbytes) / soft_storage_page_size();
    return pages >= 1 && pages <= SPARE_PAGES ? spare[pages - 1] : NULL;
}

/* Full of zeros, as one that is mapped; NULL: there is none. */
static char *
take_spare(size_t nbytes)
{
    char **places = spare_of(nbytes);
    for (int index = 0; places != NULL && index < SPARE_MOST; index++) {
        char *block = __atomic_load_n(&places[index], __ATOMIC_RELAXED) == NULL
                          ? NULL
                          : __atomic_exchange_n(&places[index], NULL, __ATOMIC_ACQUIRE);
        if (block != NULL) {
            return memset(block, 0, round_to_pages(nbytes));
        }
    }
    return NULL;
}

static bool
keep_spare(char *block, size_t nbytes)
{
    char **places = spare_of(nbytes);
    for (int index = 0; places != NULL && index < SPARE_MOST; index++) {
        char *expected = NULL;
        if (__atomic_compare_exchange_n(&places[index], &expected, block, false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
            return true;
        }
    }
    return false;
}

static char *
allocate_block(soft_storage *storage)
{
    size_t nbytes = storage->nbytes;
    char *kept = take_spare(nbytes);
    storage->is_guarded = kept != NULL || ((MAPS_SMALL || nbytes > HEAP_MOST) && take_guard());
    if (kept != NULL) {
        return kept;
    }
    if (storage->is_guarded) {
        char *mapped = map_block(nbytes, true);
        if (mapped != NULL) {
            return mapped;
        }
        give_guard_back(); /* a limit of addresses (ulimit -v) leaves room for the block alone */
        storage->is_guarded = false;
    }
    if (nbytes > HEAP_MOST) {
        return map_block(nbytes, false);
    }
    void *block = NULL;
    if (posix_memalign(&block, soft_storage_page_size(), nbytes) != 0) {
        return NULL;
    }
    return memset(block, 0, nbytes);
}

static void
free_block(const soft_storage *storage)
{
    if (storage->is_guarded && keep_spare(storage->bytes, storage->nbytes)) {
        return;
    }
    if (storage->is_guarded) {
        munmap(storage->bytes, round_to_pages(storage->nbytes) + GUARD_NBYTES);
        give_guard_back();
    }
    else if (storage->nbytes > HEAP_MOST) {
        munmap(storage->bytes, round_to_pages(storage->nbytes));
    }
    else {
        free(storage->bytes);
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

void
soft_storage_renew(soft_storage *storage, size_t nbytes, soft_writers writers)
{
    soft_fresh *fresh = nbytes == 0 ? NULL : soft_fresh_new(storage->bytes, nbytes, writers);
    soft_fresh_free(__atomic_exchange_n(&storage->fresh, fresh, __ATOMIC_ACQ_REL));
}

void
soft_storage_written(soft_storage *storage, size_t offset, size_t nbytes)
{
    soft_fresh *fresh = __atomic_load_n(&storage->fresh, __ATOMIC_ACQUIRE);
    soft_fresh_write(fresh, storage->bytes + offset, nbytes);
}

/* ---- all of them ---- */

pthread_mutex_t soft_storage_mutex = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, soft_storage) all = LIST_HEAD_INITIALIZER(all);

static soft_storage *
add_to_all(soft_storage *storage)
{
    pthread_mutex_lock(&soft_storage_mutex);
    LIST_INSERT_HEAD(&all, storage, links);
    pthread_mutex_unlock(&soft_storage_mutex);
    return storage;
}

static void
take_from_all(soft_storage *storage)
{
    pthread_mutex_lock(&soft_storage_mutex);
    LIST_REMOVE(storage, links);
    pthread_mutex_unlock(&soft_storage_mutex);
}

uint64_t
soft_storage_find(uint64_t address, uint64_t *base)
{
    uint64_t nbytes = 0;
    const soft_storage *storage;
    pthread_mutex_lock(&soft_storage_mutex);
    LIST_FOREACH(storage, &all, links)
    {
        uint64_t first = (uint64_t)(uintptr_t)storage->bytes;
        if (address - first < storage->nbytes) {
            *base = first;
            nbytes = storage->nbytes;
            break;
        }
    }
    pthread_mutex_unlock(&soft_storage_mutex);
    return nbytes;
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
    storage->bytes = no_copy ? (char *)bytes : allocate_block(storage);
    if (storage->bytes == NULL) {
        __atomic_sub_fetch(account, charged_nbytes(storage), __ATOMIC_RELAXED);
        free(storage);
        return NULL;
    }
    if (bytes != NULL && !no_copy) {
        memcpy(storage->bytes, bytes, nbytes);
    }
    if (bytes == NULL && soft_settings_get(SOFT_POISON) != 0) {
        soft_storage_discard(storage);
    }
    return add_to_all(storage);
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
    take_from_all(storage);
    __atomic_sub_fetch(storage->account, charged_nbytes(storage), __ATOMIC_RELAXED);
    if (!storage->is_foreign) {
        free_block(storage);
    }
    soft_race_shadow_free(storage->shadow);
    soft_fresh_free(storage->fresh);
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
