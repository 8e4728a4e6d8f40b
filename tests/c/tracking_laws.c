/* tracking_laws.c: random lives of a few buffers, compared with a plain list of pieces of work; run
 * by test_tracking.py.
 *
 * Owns:    the pieces, and streams that do nothing but count who holds them.
 * Laws:    work on a buffer waits for all earlier work that it conflicts with, by the marks that it
 *          is given and by what stands behind them, and so does the CPU.  A failure is told to the owner whose work it was, and to nobody who gets the
 *          buffer from the pool afterwards.  When all is finished and told, no record is left, and
 *          no stream is held.
 * Usage:   `tracking_laws SEED COUNT`: exits 0, or says which law and stops.
 */
#include <string.h>

#include "laws.h"
#include "metal/tracking.h"

#define BUFFERS 3
#define STREAMS 6 /* more than TRACKING_READS */
#define PIECES 64

/* ---- streams, and validation that is off ---- */

int softmetal_is_watching;
int softmetal_knows_unwritten;

void
softmetal_host_acquire(const void *buffer)
{
    (void)buffer;
}

void
softmetal_host_reached(const void *event, uint64_t value)
{
    (void)event;
    (void)value;
}

static metal_stream streams[STREAMS];

void
stream_release(metal_stream *stream)
{
    if (stream != NULL) {
        CHECK(stream->refs > 0);
        stream->refs--;
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

/* ---- the plain list ---- */

typedef struct piece {
    enum { FREE, RUNS, LET_GO } state;
    int buffer, owner;
    metal_stream *stream;
    uint64_t value;
    bool is_written, is_done;
    uint64_t before; /* bit n: pieces[n] comes before it, by what it has waited for */
    uint32_t told;   /* by tracking_let_go */
} piece;

typedef struct life {
    int owner; /* who has it, counted; the user's storage is one holder, each piece that runs another */
    bool is_users;
    metal_stream *failed; /* whose failure its owner must be told of; NULL: none */
} life;

static piece pieces[PIECES];
static life lives[BUFFERS];
static char handles[BUFFERS][16];

static bridge_buffer *
handle_of(int buffer)
{
    return (bridge_buffer *)handles[buffer];
}

/* Metal keeps commands of one queue that use a tracked buffer in order; the first buffer is not. */
bool
bridge_buffer_is_tracked(bridge_buffer *buffer)
{
    return buffer != handle_of(0);
}

static bool
is_held(int buffer)
{
    bool runs = false;
    for (int i = 0; i < PIECES; i++) {
        runs |= pieces[i].state == RUNS && pieces[i].buffer == buffer;
    }
    return runs || lives[buffer].is_users;
}

/* A storage goes: of the user's, or of a piece of work.  Where another is left, nothing changes. */
static void
forget(int buffer)
{
    tracking_forget(handle_of(buffer));
    if (!is_held(buffer)) {
        lives[buffer].owner++;
        lives[buffer].failed = NULL;
    }
}

/* ---- what comes before what ---- */

/* The pieces that come before what waits for this mark: the marked one, what its stream has before it,
 * and what all of them have waited for. */
static uint64_t
before_mark(const stream_mark *mark)
{
    uint64_t before = 0;
    for (int other = 0; other < PIECES; other++) {
        const piece *work = &pieces[other];
        if (work->state != FREE && work->stream == mark->stream && work->value <= mark->value) {
            before |= UINT64_C(1) << other | work->before;
        }
    }
    return before;
}

static uint64_t
before_on_queue(int buffer, const metal_stream *stream)
{
    uint64_t before = 0;
    for (int other = 0; other < PIECES; other++) {
        const piece *work = &pieces[other];
        if (buffer != 0 && work->state != FREE && work->stream == stream &&
            work->buffer == buffer) {
            before |= UINT64_C(1) << other | work->before;
        }
    }
    return before;
}

/* Every piece on the buffer that a read, or a write, conflicts with is among these, or done. */
static void
check_all_before(int buffer, bool is_written, uint64_t before)
{
    for (int other = 0; other < PIECES; other++) {
        const piece *work = &pieces[other];
        bool conflicts =
            work->state != FREE && work->buffer == buffer && (is_written || work->is_written);
        CHECK(!conflicts || work->is_done || (before >> other & 1) != 0);
    }
}

/* ---- what can happen ---- */

static void
submit(int buffer, piece *work)
{
    tracking_before marks[TRACKING_MARKS];
    metal_stream *stream = &streams[pick(0, STREAMS - 1)];
    bool is_written = pick(0, 2) == 0;
    metal_storage storage = {.handle = handle_of(buffer)};
    const work_operand operand = {&storage, is_written};
    lives[buffer].is_users = true; /* out of the pool, if it was there */
    int count = tracking_prepare_locked(stream, &operand, 1, marks);
    CHECK(count >= 0);
    uint64_t before = before_on_queue(buffer, stream);
    for (int i = 0; i < count; i++) {
        CHECK(marks[i].buffer == storage.handle);
        before |= before_mark(&marks[i].mark);
    }
    check_all_before(buffer, is_written, before);
    *work = (piece){.state = RUNS,
                    .buffer = buffer,
                    .owner = lives[buffer].owner,
                    .stream = stream,
                    .value = ++stream->submitted,
                    .is_written = is_written,
                    .before = before};
    stream_retain(stream);
    tracking_begin_locked(&operand, 1, stream, work->value);
}

/* The GPU has done it, and all that it has waited for. */
static void
let_go(piece *work)
{
    for (int other = 0; other < PIECES; other++) {
        pieces[other].is_done |= &pieces[other] == work || (work->before >> other & 1) != 0;
    }
    work->told = tracking_let_go(handle_of(work->buffer));
    work->state = LET_GO;
    if (!lives[work->buffer].is_users) {
        forget(work->buffer);
    }
}

static void
end(piece *work)
{
    life *now = &lives[work->buffer];
    bool has_failed = pick(0, 2) == 0;
    if (has_failed) {
        work->stream->has_failed = true;
        if (now->owner == work->owner && now->failed == NULL) {
            now->failed = work->stream;
        }
    }
    tracking_end(handle_of(work->buffer), work->stream, work->value, has_failed, work->told);
    if (work->stream->completed < work->value) {
        work->stream->completed = work->value;
    }
    stream_release(work->stream);
    work->state = FREE;
    for (int other = 0; other < PIECES; other++) {
        pieces[other].before &= ~(UINT64_C(1) << (work - pieces));
    }
}

/* A wait on the stream, which reports its failure: all buffers forget it. */
static void
report(metal_stream *stream)
{
    bridge_error error;
    (void)tracking_take_failure(stream, &error);
    for (int buffer = 0; buffer < BUFFERS; buffer++) {
        lives[buffer].failed = lives[buffer].failed == stream ? NULL : lives[buffer].failed;
    }
}

/* ---- what must be told ---- */

static void
look(int buffer)
{
    stream_mark marks[TRACKING_MARKS];
    bool is_written = pick(0, 1) == 0;
    int count = tracking_copy_marks(handle_of(buffer), is_written, marks), failures = 0;
    uint64_t before = 0;
    for (int i = 0; i < count; i++) {
        CHECK(marks[i].stream->refs > 0);
        CHECK(marks[i].is_of_earlier_owner == !is_held(buffer));
        bool is_failure = marks[i].value == 0;
        failures += is_failure;
        CHECK(!is_failure || marks[i].stream == lives[buffer].failed);
        before |= before_mark(&marks[i]);
    }
    CHECK(failures == (lives[buffer].failed != NULL && lives[buffer].failed->has_failed));
    check_all_before(buffer, is_written, before);
    tracking_release_marks(marks, count);
}

/* Return the stream's first piece that is not cleaned up: they are cleaned up in order. */
static piece *
first_of_stream(piece *work)
{
    for (int other = 0; work->state != FREE && other < PIECES; other++) {
        if (pieces[other].state != FREE && pieces[other].stream == work->stream &&
            pieces[other].value < work->value) {
            work = &pieces[other];
        }
    }
    return work;
}

static void
step(void)
{
    piece *work = first_of_stream(&pieces[pick(0, PIECES - 1)]);
    int buffer = (int)pick(0, BUFFERS - 1);
    switch (work->state) {
    case FREE:
        if (pick(0, 1) == 0) {
            submit(buffer, work);
        }
        break;
    case RUNS: let_go(work); break;
    case LET_GO: end(work); break;
    }
    if (pick(0, 7) == 0 && lives[buffer].is_users) {
        lives[buffer].is_users = false;
        forget(buffer);
    }
    if (pick(0, 15) == 0) {
        report(&streams[pick(0, STREAMS - 1)]);
    }
    look(buffer);
}

static void
finish_all(void)
{
    for (int i = 0; i < PIECES; i++) {
        while (pieces[i].state != FREE) {
            piece *work = first_of_stream(&pieces[i]);
            (work->state == RUNS ? let_go : end)(work);
        }
    }
    for (int i = 0; i < STREAMS; i++) {
        report(&streams[i]);
        CHECK(streams[i].refs == 0);
    }
    /* Work that was not handed over leaves nothing either, though it names a buffer twice. */
    metal_storage storage = {.handle = handle_of(0)};
    const work_operand operands[] = {{&storage, false}, {&storage, true}};
    tracking_before marks[2 * TRACKING_MARKS];
    CHECK(tracking_prepare_locked(&streams[0], operands, 2, marks) == 0);
    tracking_cancel_locked(operands, 2);
    CHECK(tracking_is_quiet(NULL));
}

int
main(int argc, char **argv)
{
    int64_t count = begin_laws(argc, argv);
    for (int64_t i = 0; i < count; i++) {
        step();
        if (pick(0, 500) == 0) {
            finish_all();
        }
    }
    finish_all();
    return 0;
}
