/* tracking_laws.c: random pieces of work on a few buffers, against a list of all of them.
 *
 * Laws:      whoever waits for the marks has waited for all work that must come before, since a
 *            piece begins after what it waits for, and a queue's work ends in order; a mark says
 *            whether the buffer was given up since the last piece began; a buffer is idle when
 *            no piece is unfinished.
 * Program:   tracking_laws SEED STEPS; ends with 1 at the first that does not hold.
 */
#include <stdbool.h>
#include <string.h>

#include "laws.h"
#include "metal/tracking.h"

#define BUFFERS 3
#define STREAMS 7 /* more than TRACKING_READS */
#define PIECES 512

typedef struct piece {
    int buffer, stream;
    uint64_t value;
    bool is_written, is_let_go, is_finished;
    uint8_t
        comes_after[PIECES / 8]; /* a bit for each piece that is finished when this one is */
} piece;

static piece pieces[PIECES];
static int count;
static metal_stream streams[STREAMS];
static char buffers[BUFFERS][64]; /* their addresses are keys */
static bool is_given_up[BUFFERS];

/* ---- what tracking.c calls ---- */

int softmetal_is_watching;

void
softmetal_host_access(const void *buffer, size_t offset_bytes, size_t nbytes, int is_written)
{
    (void)buffer, (void)offset_bytes, (void)nbytes, (void)is_written;
}

void
softmetal_host_reached(const void *event, uint64_t value)
{
    (void)event, (void)value;
}

void
softmetal_host_release(const void *buffer)
{
    (void)buffer;
}

void
softmetal_host_acquire(const void *buffer)
{
    (void)buffer;
}

void
stream_retain(metal_stream *stream)
{
    if (stream != NULL) {
        stream->refs++;
    }
}

void
stream_release(metal_stream *stream)
{
    if (stream != NULL) {
        CHECK(stream->refs-- > 1);
    }
}

bool
stream_wait(metal_stream *stream, uint64_t value, uint64_t timeout_ns)
{
    (void)timeout_ns;
    return stream->completed >= value;
}

bool
stream_take_failure(metal_stream *stream, bridge_error *out)
{
    (void)out;
    bool has_failed = stream->has_failed;
    stream->has_failed = false;
    return has_failed;
}

/* ---- the list of all ---- */

static const bridge_buffer *
key_of(int buffer)
{
    return (const bridge_buffer *)(const void *)buffers[buffer];
}

static bool
is_after(const piece *later, int earlier)
{
    return later->comes_after[earlier / 8] >> (earlier % 8) & 1;
}

/* The piece that a mark names. */
static int
find(const stream_mark *mark)
{
    for (int i = 0; i < count; i++) {
        if (&streams[pieces[i].stream] == mark->stream && pieces[i].value == mark->value) {
            return i;
        }
    }
    return -1;
}

static bool
is_covered(int which, const stream_mark *marks, int nmarks)
{
    for (int i = 0; i < nmarks; i++) {
        int named = marks[i].value == 0 ? -1 : find(&marks[i]);
        if (named == which || (named >= 0 && is_after(&pieces[named], which))) {
            return true;
        }
    }
    return false;
}

/* All unfinished work on the buffer that a reader or a writer must wait for. */
static void
check_covered(int buffer, bool is_written, const stream_mark *marks, int nmarks)
{
    for (int i = 0; i < count; i++) {
        bool is_in_the_way = pieces[i].buffer == buffer && !pieces[i].is_finished &&
                             (is_written || pieces[i].is_written);
        CHECK(!is_in_the_way || is_covered(i, marks, nmarks));
    }
}

static int
count_unfinished(int buffer)
{
    int found = 0;
    for (int i = 0; i < count; i++) {
        found += pieces[i].buffer == buffer && !pieces[i].is_finished;
    }
    return found;
}

/* ---- steps ---- */

static void
note_order(piece *later, int earlier)
{
    for (size_t i = 0; i < sizeof later->comes_after; i++) {
        later->comes_after[i] |= pieces[earlier].comes_after[i];
    }
    later->comes_after[earlier / 8] |= (uint8_t)(1 << (earlier % 8));
}

static void
begin(int buffer, int stream, bool is_written)
{
    stream_mark marks[TRACKING_MARKS];
    piece *fresh = &pieces[count];
    tracking_lock();
    CHECK(tracking_reserve_locked(key_of(buffer)));
    int nmarks =
        tracking_list_locked(key_of(buffer), is_written, &streams[stream], false, marks);
    check_covered(buffer, is_written, marks, nmarks);
    *fresh = (piece){.buffer = buffer,
                     .stream = stream,
                     .value = ++streams[stream].submitted,
                     .is_written = is_written};
    for (int i = 0; i < nmarks; i++) {
        note_order(fresh, find(&marks[i]));
    }
    for (int i = 0; i < count; i++) { /* a queue's work ends in order */
        if (pieces[i].stream == stream) {
            note_order(fresh, i);
        }
    }
    count++;
    tracking_begin_locked(key_of(buffer), is_written, &streams[stream], fresh->value);
    is_given_up[buffer] = false;
    tracking_unlock();
}

/* Is all finished that the piece waits for? */
static bool
may_end(const piece *which)
{
    for (int i = 0; i < count; i++) {
        if (is_after(which, i) && !pieces[i].is_finished) {
            return false;
        }
    }
    return true;
}

/* The clean-up of the oldest piece of a stream, in two steps. */
static void
go_on(int stream, bool has_failed)
{
    for (int i = 0; i < count; i++) {
        piece *oldest = &pieces[i];
        if (oldest->stream != stream || oldest->is_finished) {
            continue;
        }
        if (!may_end(oldest)) {
            return;
        }
        if (!oldest->is_let_go) {
            tracking_let_go(key_of(oldest->buffer));
            oldest->is_let_go = true;
            return;
        }
        streams[stream].has_failed |= has_failed;
        tracking_end(key_of(oldest->buffer), &streams[stream], oldest->value, has_failed);
        streams[stream].completed = oldest->value;
        oldest->is_finished = true;
        return;
    }
}

static void
give_up(int buffer)
{
    bool is_held = false;
    for (int i = 0; i < count; i++) {
        is_held |= pieces[i].buffer == buffer && !pieces[i].is_let_go;
    }
    tracking_forget(key_of(buffer));
    is_given_up[buffer] |= !is_held;
}

static void
look(int buffer, bool is_for_writing)
{
    stream_mark marks[TRACKING_MARKS];
    int nmarks = tracking_copy_marks(key_of(buffer), is_for_writing, marks);
    check_covered(buffer, is_for_writing, marks, nmarks);
    for (int i = 0; i < nmarks; i++) {
        CHECK(marks[i].is_of_earlier_owner == is_given_up[buffer]);
        CHECK(marks[i].value == 0 || find(&marks[i]) >= 0);
    }
    tracking_release_marks(marks, nmarks);
}

static void
take_failure(int stream)
{
    bridge_error error;
    bool had_failed = streams[stream].has_failed;
    CHECK(tracking_take_failure(&streams[stream], &error) == had_failed);
}

static void
step(void)
{
    int buffer = (int)pick(0, BUFFERS - 1), stream = (int)pick(0, STREAMS - 1);
    switch (pick(0, 9)) {
    case 0:
    case 1:
    case 2: begin(buffer, stream, pick(0, 3) == 0); break;
    case 3:
    case 4:
    case 5:
    case 6: go_on(stream, pick(0, 9) == 0); break;
    case 7: give_up(buffer); break;
    case 8: take_failure(stream); break;
    default: look(buffer, pick(0, 1) == 0);
    }
}

/* Nothing is left where all is finished, told of and given up. */
static void
finish(void)
{
    for (int i = 0; i < 2 * count; i++) { /* each round ends one of two steps */
        for (int stream = 0; stream < STREAMS; stream++) {
            go_on(stream, false);
        }
        for (int buffer = 0; buffer < BUFFERS; buffer++) {
            give_up(buffer);
            look(buffer, true);
        }
    }
    for (int stream = 0; stream < STREAMS; stream++) {
        take_failure(stream);
    }
    for (int buffer = 0; buffer < BUFFERS; buffer++) {
        give_up(buffer);
        CHECK(count_unfinished(buffer) == 0);
    }
    CHECK(tracking_is_quiet());
    for (int stream = 0; stream < STREAMS; stream++) {
        CHECK(streams[stream].refs == 1);
    }
}

int
main(int argc, char **argv)
{
    int64_t steps = begin_laws(argc, argv);
    for (int stream = 0; stream < STREAMS; stream++) {
        streams[stream].refs = 1;
    }
    for (; steps > 0; steps--) {
        if (count == PIECES) {
            finish();
            count = 0;
            memset(is_given_up, 0, sizeof is_given_up);
        }
        step();
    }
    finish();
    return 0;
}
