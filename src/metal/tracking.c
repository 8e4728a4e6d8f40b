/* tracking.c: see tracking.h.  A hash table of lists; the lists are short. */
#include "metal/tracking.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "metal/locks.h"
#include "metal/timeline.h"

#define SLOTS 256

typedef struct record {
    const bridge_buffer *buffer; /* not followed: a key */
    uint32_t in_flight;          /* pieces of work that are not finished */
    uint32_t held;               /* of them, those that still keep a storage of the buffer */
    bool is_forgotten;           /* the buffer is gone */
    uint32_t owner;              /* counts who has had it: see tracking_let_go */
    stream_mark write;           /* borrowed: work in flight keeps its stream */
    stream_mark reads[TRACKING_READS]; /* since the write; borrowed as well */
    int read_count;
    metal_stream *failed; /* owned (+1); NULL: nothing failed */
    struct record *next;
} record;

uint32_t tracking_count;

static record *slots[SLOTS]; /* behind the lock */

/* In a forked child work in flight never finishes: forget it all, or reading memory would
 * wait. */
static void
forget_all(void)
{
    memset(slots, 0, sizeof slots);
    tracking_count = 0;
}

__attribute__((constructor)) static void
watch_fork(void)
{
    (void)pthread_atfork(NULL, NULL, forget_all);
}

static record **
link_of(const bridge_buffer *buffer)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)buffer >> 4) * UINT64_C(0x9E3779B97F4A7C15);
    record **link = &slots[mixed >> 56];
    while (*link != NULL && (*link)->buffer != buffer) {
        link = &(*link)->next;
    }
    return link;
}

static void
drop(record **link)
{
    record *found = *link;
    *link = found->next;
    stream_release(found->failed);
    free(found);
    (void)__atomic_sub_fetch(&tracking_count, 1, __ATOMIC_RELEASE);
}

static void
drop_if_finished(record **link)
{
    record *found = *link;
    if (found->in_flight == 0 && found->failed == NULL) {
        drop(link);
    }
}

/* ---- what is in flight ---- */

static int
list_marks(const record *found, bool is_for_writing, stream_mark *marks)
{
    int count = 0;
    if (found->write.stream != NULL) {
        marks[count++] = found->write;
    }
    for (int i = 0; is_for_writing && i < found->read_count; i++) {
        marks[count++] = found->reads[i];
    }
    return count;
}

/* Forgets a failure that was reported elsewhere.  Any other stays until tracking_take_failure:
 * the wait can be interrupted. */
static bool
has_unreported_failure(record *found)
{
    if (found->failed != NULL && !stream_has_failure(found->failed)) {
        /* unreached: no test makes it fail here */
        stream_release(found->failed);
        found->failed = NULL;
    }
    return found->failed != NULL;
}

int
tracking_copy_marks(const bridge_buffer *buffer, bool is_for_writing,
                    stream_mark marks[TRACKING_MARKS])
{
    int count = 0;
    if (tracking_is_quiet(buffer) || buffer == NULL) {
        return 0;
    }
    lock_take(LOCK_TRACKING);
    WATCH_LOOK_UP(buffer);
    record **link = link_of(buffer);
    if (*link != NULL) {
        count = list_marks(*link, is_for_writing, marks);
        if (has_unreported_failure(*link)) {
            marks[count++] = (stream_mark){.stream = (*link)->failed};
        }
    }
    for (int i = 0; i < count; i++) {
        stream_retain(marks[i].stream);
        marks[i].is_of_earlier_owner = (*link)->is_forgotten;
    }
    if (*link != NULL) {
        drop_if_finished(link);
    }
    lock_drop(LOCK_TRACKING);
    return count;
}

void
tracking_release_marks(stream_mark *marks, int count)
{
    for (int i = 0; i < count; i++) {
        stream_release(marks[i].stream);
    }
}

static void
wait_for(const stream_mark *mark, const bridge_buffer *buffer)
{
    bool is_reached = stream_has_reached(mark->stream, mark->value);
    double started = is_reached ? 0 : timeline_begin();
    (void)stream_wait(mark->stream, mark->value, STREAM_FOREVER);
    if (started != 0) {
        timeline_waited(started, NULL,
                        (timeline_record){.stream = mark->stream->serial,
                                          .value = mark->value,
                                          .dst = buffer});
    }
}

bridge_status
tracking_wait(const bridge_buffer *buffer, bool is_for_writing, bridge_error *error)
{
    stream_mark marks[TRACKING_MARKS];
    bridge_status status = BRIDGE_OK;
    int count = tracking_copy_marks(buffer, is_for_writing, marks);
    for (int i = 0; i < count; i++) {
        wait_for(&marks[i], buffer);
        if (status == BRIDGE_OK && !marks[i].is_of_earlier_owner &&
            tracking_take_failure(marks[i].stream, error)) {
            status = BRIDGE_COMMAND_FAILED;
        }
    }
    tracking_release_marks(marks, count);
    return status;
}

bool
tracking_take_failure(metal_stream *stream, bridge_error *error)
{
    if (!stream_take_failure(stream, error)) {
        return false;
    }
    lock_take(LOCK_TRACKING);
    for (int i = 0; i < SLOTS; i++) {
        for (record **link = &slots[i]; *link != NULL;) {
            record *found = *link;
            if (found->failed == stream) {
                stream_release(found->failed);
                found->failed = NULL;
                /* mutant survives (dropped call): the record goes a little later */
                drop_if_finished(link);
            }
            if (*link == found) {
                link = &found->next;
            }
        }
    }
    lock_drop(LOCK_TRACKING);
    return true;
}

void
tracking_forget(const bridge_buffer *buffer)
{
    if (tracking_is_quiet(NULL) ||
        buffer == NULL) { /* whoever takes it from the pool looks it up */
        return;
    }
    lock_take(LOCK_TRACKING);
    record **link = link_of(buffer);
    /* else another storage over the buffer is in use */
    if (*link != NULL && (*link)->held == 0) {
        record *found = *link;
        found->is_forgotten = true;
        found->owner++;
        stream_release(found->failed); /* which keeps the failure, for its own waits */
        found->failed = NULL;
        drop_if_finished(link);
    }
    lock_drop(LOCK_TRACKING);
}

/* ---- for work.c ---- */

/* Where reads are in flight on TRACKING_READS other streams, the next reader waits for the
 * oldest: its mark then counts for both. */
static bool
takes_oldest_along(const record *found, const metal_stream *stream)
{
    for (int i = 0; i < found->read_count; i++) {
        if (found->reads[i].stream == stream) {
            return false;
        }
    }
    return found->read_count == TRACKING_READS;
}

/* Metal orders commands of one queue that use a tracked buffer; commands that use an untracked one
 * must wait for their own stream as well. */
static bool
is_in_order(const stream_mark *mark, const metal_stream *stream, bridge_buffer *buffer)
{
    return mark->stream == stream && bridge_buffer_is_tracked(buffer);
}

/* Fills `before` with what is in flight of all that comes before; NULL: nothing does. */
static int
list_before(const record *found, bridge_buffer *buffer, bool is_written,
            const metal_stream *stream, tracking_before *before)
{
    WATCH_LOOK_UP(buffer);
    if (found == NULL) {
        return 0;
    }
    stream_mark all[TRACKING_MARKS];
    int total = list_marks(found, is_written, all), count = 0;
    if (!is_written && takes_oldest_along(found, stream)) {
        all[total++] = found->reads[0];
    }
    for (int i = 0; i < total; i++) {
        if (!is_in_order(&all[i], stream, buffer) &&
            !stream_has_reached(all[i].stream, all[i].value)) {
            before[count++] = (tracking_before){all[i], buffer};
        }
    }
    return count;
}

int
tracking_list_locked(bridge_buffer *buffer, const metal_stream *stream,
                     tracking_before before[TRACKING_MARKS])
{
    return list_before(*link_of(buffer), buffer, true, stream, before);
}

/* The buffer's record, which may be a new one.  NULL: there is no memory. */
static record *
reserve(const bridge_buffer *buffer)
{
    record **link = link_of(buffer);
    if (*link == NULL) {
        record *fresh = calloc(1, sizeof *fresh);
        if (fresh == NULL) {
            return NULL;
        }
        fresh->buffer = buffer;
        *link = fresh;
        (void)__atomic_add_fetch(&tracking_count, 1, __ATOMIC_RELEASE);
    }
    return *link;
}

int
tracking_prepare_locked(const metal_stream *stream, const work_operand *operands, int count,
                        tracking_before *before)
{
    int total = 0;
    for (int i = 0; i < count; i++) {
        bridge_buffer *buffer = operands[i].storage->handle;
        const record *found = reserve(buffer);
        if (found == NULL) {
            tracking_cancel_locked(operands, i);
            return -1;
        }
        total += list_before(found, buffer, operands[i].is_written, stream, before + total);
    }
    return total;
}

void
tracking_cancel_locked(const work_operand *operands, int count)
{
    for (int i = 0; i < count; i++) {
        record **link = link_of(operands[i].storage->handle);
        if (*link != NULL) { /* NULL: an operand before has the same buffer */
            drop_if_finished(link);
        }
    }
}

static void
add_read(record *found, metal_stream *stream, uint64_t value)
{
    for (int i = 0; i < found->read_count; i++) {
        if (found->reads[i].stream == stream) {
            found->reads[i].value = value;
            return;
        }
    }
    if (found->read_count < TRACKING_READS) {
        found->reads[found->read_count++] = (stream_mark){.stream = stream, .value = value};
        return;
    }
    /* The first finishes before this one begins: tracking_prepare_locked listed it. */
    for (int i = 1; i < TRACKING_READS; i++) {
        found->reads[i - 1] = found->reads[i];
    }
    found->reads[TRACKING_READS - 1] = (stream_mark){.stream = stream, .value = value};
}

void
tracking_begin_locked(const work_operand *operands, int count, metal_stream *stream,
                      uint64_t value)
{
    for (int i = 0; i < count; i++) {
        record *found = *link_of(operands[i].storage->handle);
        found->in_flight++;
        found->held++;
        found->is_forgotten = false; /* the buffer is in use again: see pool.h */
        if (operands[i].is_written) {
            found->write = (stream_mark){.stream = stream, .value = value};
            found->read_count = 0;
        }
        else {
            add_read(found, stream, value);
        }
    }
}

uint32_t
tracking_let_go(const bridge_buffer *buffer)
{
    uint32_t owner = 0;
    lock_take(LOCK_TRACKING);
    record *found = *link_of(buffer);
    if (found != NULL) { /* NULL: forgotten in a forked child */
        found->held--;
        owner = found->owner;
    }
    lock_drop(LOCK_TRACKING);
    return owner;
}

static bool
is_finished(stream_mark mark, const metal_stream *stream, uint64_t value)
{
    return mark.stream == stream && mark.value <= value;
}

void
tracking_end(const bridge_buffer *buffer, metal_stream *stream, uint64_t value, bool has_failed,
             uint32_t owner)
{
    lock_take(LOCK_TRACKING);
    record **link = link_of(buffer);
    record *found = *link;
    if (found == NULL) { /* unreached: forgotten in a forked child */
        lock_drop(LOCK_TRACKING);
        return;
    }
    found->in_flight--;
    if (is_finished(found->write, stream, value)) {
        found->write = (stream_mark){.stream = NULL};
    }
    int kept = 0;
    for (int i = 0; i < found->read_count; i++) {
        if (!is_finished(found->reads[i], stream, value)) {
            found->reads[kept++] = found->reads[i];
        }
    }
    found->read_count = kept;
    if (has_failed && owner == found->owner && found->failed == NULL) {
        stream_retain(stream);
        found->failed = stream;
    }
    drop_if_finished(link);
    lock_drop(LOCK_TRACKING);
}
