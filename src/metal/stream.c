/* stream.c: see stream.h. */
#include "metal/stream.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "metal/locks.h"

#define SECOND_NS UINT64_C(1000000000)

/* One lock for all streams: it is held for a few instructions.  One condition: few threads
 * wait, and waking them all is cheap. */
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static metal_stream *living;    /* behind the lock */
static metal_stream *lost;      /* behind the lock: their failures only */
static void (*tell_lost)(void); /* atomic */
/* behind the lock; each owned (+1) for ever */
static metal_stream *default_streams[DEVICES_MAX];

static void
prepare(void)
{
#ifdef __APPLE__
    (void)pthread_cond_init(&changed, NULL);
#else
    pthread_condattr_t attributes;
    /* mutant survives (dropped call): glibc's only clears a number */
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
#endif
}

/* ---- making ---- */

static metal_stream *
find_locked(const void *queue)
{
    for (metal_stream *stream = living; stream != NULL; stream = stream->next) {
        /* A count of 0: another thread has dropped the last reference and waits for
         * the lock. */
        if ((const void *)stream->queue == queue &&
            __atomic_load_n(&stream->refs, __ATOMIC_RELAXED) != 0) {
            stream_retain(stream);
            return stream;
        }
    }
    return NULL;
}

/* Takes over `queue`, whatever the result. */
static bridge_status
make(bridge_queue *queue, const device_record *device, metal_stream **out)
{
    bridge_event *event = queue == NULL ? NULL : bridge_event_new(device->handle);
    metal_stream *stream = event == NULL ? NULL : calloc(1, sizeof *stream);
    if (stream == NULL) {
        bridge_event_release(event);
        bridge_queue_release(queue);
        bool is_metals = queue == NULL || event == NULL;
        return bridge_is_forked() ? BRIDGE_FORKED
               : is_metals        ? BRIDGE_NO_COMMAND
                                  : BRIDGE_NO_MEMORY;
    }
    static uint32_t last_serial; /* atomic */
    stream->refs = 1;
    stream->serial = __atomic_add_fetch(&last_serial, 1, __ATOMIC_RELAXED);
    stream->device = device;
    stream->queue = queue;
    stream->event = event;
    *out = stream;
    return BRIDGE_OK;
}

/* Only the failure is left, for stream_take_lost. */
static void
keep_failure(metal_stream *stream)
{
    void (*tell)(void) = __atomic_load_n(&tell_lost, __ATOMIC_ACQUIRE);
    if (tell == NULL || bridge_is_forked()) {
        free(stream);
        return; /* unreached: in a forked child, or without Python */
    }
    lock_take(LOCK_STREAMS);
    stream->next = lost;
    lost = stream;
    lock_drop(LOCK_STREAMS);
    tell();
}

static void
destroy(metal_stream *stream)
{
    bridge_event_release(stream->event);
    bridge_queue_release(stream->queue);
    if (stream_has_failure(stream)) {
        keep_failure(stream);
        return;
    }
    free(stream);
}

/* Lists a stream, unless another thread has listed one of its queue meanwhile: then that one
 * is the result. */
static metal_stream *
add(metal_stream *stream)
{
    (void)pthread_once(&once, prepare);
    lock_take(LOCK_STREAMS);
    metal_stream *earlier = find_locked(stream->queue);
    if (earlier == NULL) {
        stream->next = living;
        living = stream;
    }
    lock_drop(LOCK_STREAMS);
    if (earlier == NULL) {
        return stream;
    }
    /* unreached: only if another thread is faster */
    destroy(stream);
    return earlier;
}

bridge_status
stream_new(const device_record *device, metal_stream **out)
{
    *out = NULL;
    bridge_status status = make(bridge_queue_new(device->handle), device, out);
    if (status == BRIDGE_OK) {
        *out = add(*out);
    }
    return status;
}

bridge_status
stream_of_queue(bridge_queue *queue, const device_record *device, metal_stream **out)
{
    *out = stream_find(queue);
    if (*out != NULL) {
        return BRIDGE_OK;
    }
    bridge_queue_retain(queue);
    bridge_status status = make(queue, device, out);
    if (status == BRIDGE_OK) {
        *out = add(*out);
    }
    return status;
}

metal_stream *
stream_default(const device_record *device)
{
    metal_stream **place = &default_streams[device->index];
    metal_stream *stream = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    if (stream != NULL || stream_new(device, &stream) != BRIDGE_OK) {
        return stream; /* where Metal gives no queue, the next call asks again */
    }
    metal_stream *expected = NULL;
    if (!__atomic_compare_exchange_n(place, &expected, stream, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        /* unreached: only if another thread is faster */
        stream_release(stream);
        return expected;
    }
    return stream;
}

metal_stream *
stream_find(const void *queue)
{
    lock_take(LOCK_STREAMS);
    metal_stream *stream = find_locked(queue);
    lock_drop(LOCK_STREAMS);
    return stream;
}

metal_stream **
stream_list(const device_record *device, size_t *count)
{
    size_t most = 0;
    *count = 0;
    lock_take(LOCK_STREAMS);
    for (metal_stream *stream = living; stream != NULL; stream = stream->next) {
        most++;
    }
    metal_stream **list = malloc((most + 1) * sizeof *list); /* NULL is never for none */
    for (metal_stream *stream = living; list != NULL && stream != NULL; stream = stream->next) {
        if (stream->device == device && __atomic_load_n(&stream->refs, __ATOMIC_RELAXED) != 0) {
            stream_retain(stream);
            list[(*count)++] = stream;
        }
    }
    lock_drop(LOCK_STREAMS);
    return list;
}

/* ---- counting ---- */

void
stream_release(metal_stream *stream)
{
    if (stream == NULL) {
        return;
    }
    uint32_t refs = __atomic_load_n(&stream->refs, __ATOMIC_RELAXED);
    while (refs > 1) {
        if (__atomic_compare_exchange_n(&stream->refs, &refs, refs - 1, true, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
            return;
        }
    }
    /* It may be the last: under the lock, or stream_find could return it on its way out. */
    lock_take(LOCK_STREAMS);
    bool is_last = __atomic_sub_fetch(&stream->refs, 1, __ATOMIC_ACQ_REL) == 0;
    for (metal_stream **link = &living; is_last && *link != NULL; link = &(*link)->next) {
        if (*link == stream) {
            *link = stream->next;
            break;
        }
    }
    lock_drop(LOCK_STREAMS);
    if (is_last) {
        destroy(stream);
    }
}

/* ---- how far it is ---- */

#ifdef __APPLE__
#define CLOCK CLOCK_UPTIME_RAW /* what pthread_cond_timedwait_relative_np goes by */
#else
#define CLOCK CLOCK_MONOTONIC
#endif

static uint64_t
now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK, &time);
    return (uint64_t)time.tv_sec * SECOND_NS + (uint64_t)time.tv_nsec;
}

/* False once the time is up.  LOCK_STREAMS is held. */
static bool
sleep_until_changed(uint64_t deadline_ns)
{
#ifdef __APPLE__
    uint64_t now_ns = now();
    if (now_ns >= deadline_ns) {
        return false;
    }
    deadline_ns -= now_ns;
#endif
    struct timespec when = {(time_t)(deadline_ns / SECOND_NS), (long)(deadline_ns % SECOND_NS)};
#ifdef __APPLE__
    (void)pthread_cond_timedwait_relative_np(&changed, &locks[LOCK_STREAMS], &when);
    return true;
#else
    return pthread_cond_timedwait(&changed, &locks[LOCK_STREAMS], &when) != ETIMEDOUT;
#endif
}

/* The moment, or one that never comes; within what a timespec of 32 bits would still hold. */
static uint64_t
deadline_after(uint64_t timeout_ns)
{
    uint64_t most = INT32_MAX * SECOND_NS, start = now();
    return timeout_ns > most - start ? most : start + timeout_ns;
}

bool
stream_wait(metal_stream *stream, uint64_t value, uint64_t timeout_ns)
{
    if (stream_has_reached(stream, value)) {
        return true;
    }
    if (timeout_ns == 0 || bridge_is_forked()) {
        return false;
    }
    uint64_t deadline_ns = deadline_after(timeout_ns);
    bool is_in_time = true;
    lock_take(LOCK_STREAMS);
    while (!stream_has_reached(stream, value) && is_in_time) {
        is_in_time = sleep_until_changed(deadline_ns);
    }
    lock_drop(LOCK_STREAMS);
    return stream_has_reached(stream, value);
}

/* ---- bells ---- */

/* A moment for which an event loop waits. */
typedef struct bell {
    const metal_stream *stream; /* borrowed: work in flight keeps it */
    uint64_t value;
    int descriptor; /* borrowed until stream_silence */
    struct bell *next;
} bell;

static bell *bells; /* behind the lock */

bridge_status
stream_ring(metal_stream *stream, uint64_t value, int descriptor, bool *is_reached)
{
    *is_reached = stream_has_reached(stream, value);
    if (*is_reached || bridge_is_forked()) {
        return *is_reached ? BRIDGE_OK : BRIDGE_FORKED;
    }
    bell *added = malloc(sizeof *added);
    if (added == NULL) {
        return BRIDGE_NO_MEMORY;
    }
    lock_take(LOCK_STREAMS);
    *is_reached = stream_has_reached(stream, value);
    if (!*is_reached) {
        *added = (bell){stream, value, descriptor, bells};
        bells = added;
        added = NULL;
    }
    lock_drop(LOCK_STREAMS);
    free(added);
    return BRIDGE_OK;
}

/* A pipe that is full is readable already. */
static void
ring(int descriptor)
{
    while (write(descriptor, "", 1) < 0 && errno == EINTR) {
    }
}

/* The bells of finished work of a stream ring and go; those of a descriptor go.  NULL and -1:
 * none. */
static void
drop_bells_locked(const metal_stream *stream, int descriptor)
{
    for (bell **link = &bells; *link != NULL;) {
        bell *found = *link;
        bool is_due = found->stream == stream && found->value <= stream->completed;
        if (!is_due && found->descriptor != descriptor) {
            link = &found->next;
            continue;
        }
        *link = found->next;
        if (is_due) {
            ring(found->descriptor);
        }
        free(found);
    }
}

void
stream_silence(int descriptor)
{
    lock_take(LOCK_STREAMS);
    drop_bells_locked(NULL, descriptor);
    lock_drop(LOCK_STREAMS);
}

void
stream_complete(metal_stream *stream, uint64_t value)
{
    lock_take(LOCK_STREAMS);
    if (stream->completed < value) {
        __atomic_store_n(&stream->completed, value, __ATOMIC_RELEASE);
    }
    drop_bells_locked(stream, -1);
    lock_drop(LOCK_STREAMS);
    (void)pthread_cond_broadcast(
        &changed); /* under the lock, those who wake would wait for it */
}

/* ---- failures ---- */

void
stream_note_failure(metal_stream *stream, const bridge_error *error)
{
    lock_take(LOCK_STREAMS);
    if (!stream->has_failed) {
        stream->failure = *error;
        __atomic_store_n(&stream->has_failed, true, __ATOMIC_RELEASE);
    }
    lock_drop(LOCK_STREAMS);
}

bool
stream_take_failure(metal_stream *stream, bridge_error *out)
{
    if (!stream_has_failure(stream)) {
        return false;
    }
    lock_take(LOCK_STREAMS);
    bool has_failed = stream->has_failed;
    if (has_failed) {
        *out = stream->failure;
        __atomic_store_n(&stream->has_failed, false, __ATOMIC_RELAXED);
    }
    lock_drop(LOCK_STREAMS);
    return has_failed;
}

bool
stream_take_lost(bridge_error *out)
{
    lock_take(LOCK_STREAMS);
    metal_stream *found = lost;
    if (found != NULL) {
        lost = found->next;
    }
    lock_drop(LOCK_STREAMS);
    if (found != NULL) {
        *out = found->failure;
        free(found);
    }
    return found != NULL;
}

void
stream_on_lost(void (*tell)(void))
{
    __atomic_store_n(&tell_lost, tell, __ATOMIC_RELEASE);
}
