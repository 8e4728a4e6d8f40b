/* pool.c: see pool.h.
 *
 * A class is a range of sizes, eight to each power of two; its storages are a list, the newest
 * first.  Where too much is cached the oldest of all classes goes.
 */
#include "metal/pool.h"

#include <stdlib.h>

#include "metal/locks.h"
#include "metal/lookup.h"
#include "metal/timeline.h"
#include "metal/tracking_watch.h"

#define SMALLEST_BITS 8 /* 256 bytes: Metal's own grain is no finer */
#define STEP_BITS 3     /* eight classes to a power of two */
#define LARGEST_BITS 48
#define CLASS_COUNT (1 + ((LARGEST_BITS - SMALLEST_BITS) << STEP_BITS))
/* Without a limit of the user's the cache may hold a quarter of what the device calls a good
 * working set. */
#define CACHE_SHARE 4

typedef struct size_class {
    metal_storage *newest, *oldest; /* joined by `cached` */
} size_class;

typedef struct device_pool {
    size_class classes[POOL_MODES][CLASS_COUNT];
    pool_counts modes[POOL_MODES];
    uint64_t live_nbytes, cached_nbytes, peak_nbytes; /* of all modes together */
    bool has_limit;
    uint64_t limit_nbytes; /* where there is one */
    uint64_t clock;        /* counts what was given back */
} device_pool;

static device_pool pools[DEVICES_MAX]; /* behind the lock */

/* ---- size classes ---- */

/* The class of a size, and the size of the class.  -1: too large for any. */
static int
class_of(size_t nbytes, size_t *capacity)
{
    *capacity = (size_t)1 << SMALLEST_BITS;
    if (nbytes <= *capacity) {
        return 0;
    }
    if (nbytes > (size_t)1 << LARGEST_BITS) {
        *capacity = nbytes;
        return -1;
    }
    size_t last = nbytes - 1;
    int bits = 63 - __builtin_clzll(last); /* 2^bits <= last < 2^(bits + 1) */
    int step = (int)(last >> (bits - STEP_BITS)) & ((1 << STEP_BITS) - 1);
    *capacity = (size_t)((1 << STEP_BITS) + step + 1) << (bits - STEP_BITS);
    return 1 + ((bits - SMALLEST_BITS) << STEP_BITS) + step;
}

size_t
pool_round(size_t nbytes)
{
    size_t capacity;
    (void)class_of(nbytes, &capacity);
    return capacity;
}

/* ---- counting, all behind the lock ---- */

/* One more, 1, or one fewer, -1: the counters wrap round, and back. */
static void
count_live(device_pool *pool, bridge_storage mode, uint64_t nbytes, int change)
{
    pool->modes[mode].live_count += (uint64_t)change;
    pool->modes[mode].live_nbytes += nbytes * (uint64_t)change;
    pool->live_nbytes += nbytes * (uint64_t)change;
}

static void
count_cached(device_pool *pool, const metal_storage *storage, int change)
{
    uint64_t nbytes = storage->capacity * (uint64_t)change;
    pool->modes[storage->mode].cached_count += (uint64_t)change;
    pool->modes[storage->mode].cached_nbytes += nbytes;
    pool->cached_nbytes += nbytes;
}

static void
raise_to(uint64_t *peak, uint64_t nbytes)
{
    if (nbytes > *peak) {
        *peak = nbytes;
    }
}

static void
count_made(device_pool *pool, bridge_storage mode)
{
    pool->modes[mode].allocations++;
    raise_to(&pool->modes[mode].peak_nbytes, pool->modes[mode].live_nbytes);
    raise_to(&pool->peak_nbytes, pool->live_nbytes);
}

/* ---- the lists, all behind the lock ---- */

static void
push(device_pool *pool, size_class *where, metal_storage *storage)
{
    storage->cached.age = ++pool->clock;
    storage->cached.newer = NULL;
    storage->cached.older = where->newest;
    if (where->newest != NULL) {
        where->newest->cached.newer = storage;
    }
    else {
        where->oldest = storage;
    }
    where->newest = storage;
    count_cached(pool, storage, 1);
}

/* Take the storage from its class, which holds it, and return it. */
static metal_storage *
pop(device_pool *pool, size_class *where, metal_storage *storage)
{
    metal_storage *older = storage->cached.older, *newer = storage->cached.newer;
    *(newer != NULL ? &newer->cached.older : &where->newest) = older;
    *(older != NULL ? &older->cached.newer : &where->oldest) = newer;
    count_cached(pool, storage, -1);
    return storage;
}

static size_class *
class_with_the_oldest(device_pool *pool)
{
    size_class *found = NULL;
    size_class *all = &pool->classes[0][0];
    for (size_t i = 0; i < (size_t)POOL_MODES * CLASS_COUNT; i++) {
        if (all[i].oldest != NULL &&
            (found == NULL || all[i].oldest->cached.age < found->oldest->cached.age)) {
            found = &all[i];
        }
    }
    return found;
}

/* Let the oldest go until at most so many bytes are cached; they are put on the
 * list `popped`. */
static void
trim_locked(device_pool *pool, uint64_t cached_nbytes, metal_storage **popped)
{
    while (pool->cached_nbytes > cached_nbytes) {
        size_class *where = class_with_the_oldest(pool);
        metal_storage *storage = pop(pool, where, where->oldest);
        storage->cached.older = *popped;
        *popped = storage;
    }
}

/* Without the lock, as below: Metal's part. */
static void
destroy(metal_storage *storage)
{
    lookup_remove(storage);
    bridge_buffer_release(storage->handle);
    free(storage);
}

static uint64_t
destroy_all(metal_storage *popped)
{
    uint64_t nbytes = 0;
    while (popped != NULL) {
        metal_storage *storage = popped;
        popped = storage->cached.older;
        nbytes += storage->capacity;
        destroy(storage);
    }
    return nbytes;
}

/* ---- limits ---- */

static uint64_t
subtract(uint64_t from, uint64_t what)
{
    return from > what ? from - what : 0;
}

/* How many bytes may be cached now. */
static uint64_t
cache_room(const device_pool *pool, const device_record *device)
{
    if (pool->has_limit) {
        return subtract(pool->limit_nbytes, pool->live_nbytes);
    }
    return device->facts.recommended_max_working_set / CACHE_SHARE;
}

void
pool_set_limit(const device_record *device, uint64_t limit_nbytes)
{
    metal_storage *popped = NULL;
    device_pool *pool = &pools[device->index];
    lock_take(LOCK_POOL);
    pool->has_limit = limit_nbytes != POOL_NO_LIMIT;
    pool->limit_nbytes = limit_nbytes;
    trim_locked(pool, cache_room(pool, device), &popped);
    lock_drop(LOCK_POOL);
    (void)destroy_all(popped);
}

uint64_t
pool_limit(const device_record *device)
{
    lock_take(LOCK_POOL);
    const device_pool *pool = &pools[device->index];
    uint64_t limit = pool->has_limit ? pool->limit_nbytes : POOL_NO_LIMIT;
    lock_drop(LOCK_POOL);
    return limit;
}

/* ---- in and out ---- */

/* One that was taken out, for its next owner. */
static metal_storage *
renew(metal_storage *storage, size_t nbytes)
{
    WATCH_RENEW(storage->handle);
    storage->nbytes = nbytes;
    storage->is_readonly = false;
    storage->is_exported = false;
    __atomic_store_n(&storage->refs, 1, __ATOMIC_RELEASE); /* from here on lookup.h finds it */
    timeline_born(storage->handle);
    return storage;
}

metal_storage *
pool_take(const device_record *device, size_t nbytes, bridge_storage mode)
{
    size_t capacity;
    int class = class_of(nbytes, &capacity);
    if (nbytes == 0 || class < 0 || bridge_is_forked()) {
        return NULL;
    }
    device_pool *pool = &pools[device->index];
    size_class *where = &pool->classes[mode][class];
    metal_storage *storage = NULL;
    lock_take(LOCK_POOL);
    if (where->newest != NULL) {
        storage = pop(pool, where, where->newest);
        WATCH_LOOK_UP(storage->handle); /* work that used it may have ended just now */
        count_live(pool, mode, storage->capacity, 1);
        count_made(pool, mode);
        pool->modes[mode].hits++;
    }
    lock_drop(LOCK_POOL);
    return storage == NULL ? NULL : renew(storage, nbytes);
}

bool
pool_admit(const device_record *device, size_t capacity, bridge_storage mode)
{
    metal_storage *popped = NULL;
    device_pool *pool = &pools[device->index];
    lock_take(LOCK_POOL);
    bool fits = true;
    if (pool->has_limit) {
        uint64_t room = subtract(pool->limit_nbytes, pool->live_nbytes);
        fits = capacity <= room;
        trim_locked(pool, subtract(room, capacity), &popped);
    }
    if (fits) {
        count_live(pool, mode, capacity, 1);
    }
    lock_drop(LOCK_POOL);
    (void)destroy_all(popped);
    return fits;
}

void
pool_settle(const device_record *device, size_t capacity, bridge_storage mode, bool is_made)
{
    device_pool *pool = &pools[device->index];
    lock_take(LOCK_POOL);
    if (is_made) {
        count_made(pool, mode);
    }
    else {
        count_live(pool, mode, capacity, -1);
    }
    lock_drop(LOCK_POOL);
}

void
pool_give(metal_storage *storage, bool is_reusable)
{
    size_t capacity;
    int class = class_of(storage->capacity, &capacity);
    bool is_kept =
        is_reusable && class >= 0 && capacity == storage->capacity && !bridge_is_forked();
    const device_record *device = storage->device;
    device_pool *pool = &pools[device->index];
    metal_storage *popped = NULL;
    lock_take(LOCK_POOL);
    count_live(pool, storage->mode, storage->capacity, -1);
    if (is_kept) {
        push(pool, &pool->classes[storage->mode][class], storage);
        trim_locked(pool, cache_room(pool, device),
                    &popped); /* the storage itself may go too */
    }
    lock_drop(LOCK_POOL);
    if (!is_kept) {
        destroy(storage);
    }
    else if (popped != NULL) {
        (void)destroy_all(popped);
    }
}

static uint64_t
empty_one(const device_record *device)
{
    metal_storage *popped = NULL;
    lock_take(LOCK_POOL);
    trim_locked(&pools[device->index], 0, &popped);
    lock_drop(LOCK_POOL);
    return destroy_all(popped);
}

uint64_t
pool_empty(const device_record *device)
{
    uint64_t nbytes = 0;
    if (device != NULL) { /* unreached: no test makes it fail here */
        return empty_one(device);
    }
    int count = devices_count();
    for (int i = 0; i < count; i++) {
        nbytes += empty_one(devices_get(i));
    }
    return nbytes;
}

static void
add_up(const pool_counts *modes, pool_counts *total)
{
    *total = (pool_counts){0};
    for (int mode = 0; mode < POOL_MODES; mode++) {
        total->live_nbytes += modes[mode].live_nbytes;
        total->live_count += modes[mode].live_count;
        total->cached_nbytes += modes[mode].cached_nbytes;
        total->cached_count += modes[mode].cached_count;
        total->allocations += modes[mode].allocations;
        total->hits += modes[mode].hits;
    }
}

void
pool_read(const device_record *device, pool_counts modes[POOL_MODES], pool_counts *total)
{
    const device_pool *pool = &pools[device->index];
    lock_take(LOCK_POOL);
    for (int mode = 0; mode < POOL_MODES; mode++) {
        modes[mode] = pool->modes[mode];
    }
    add_up(modes, total);
    total->peak_nbytes = pool->peak_nbytes;
    lock_drop(LOCK_POOL);
}
