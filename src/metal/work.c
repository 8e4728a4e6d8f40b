/* work.c: see work.h. */
#include "metal/work.h"

#include <math.h>
#include <stdlib.h>

#include "metal/locks.h"

typedef struct piece_use {
    metal_storage *storage; /* owned (+1) */
    bridge_buffer *handle;  /* at the end, when its command buffer still keeps it ... */
    uint32_t owner;         /* ... and tracking_let_go */
} piece_use;

/* One piece, from its submission to its clean-up. */
typedef struct piece {
    metal_stream *stream; /* owned (+1) */
    work_time *time;      /* owned (+1); NULL: nobody asks */
    uint64_t value;
    uint64_t number; /* in the timeline; 0: none is open */
    int count;
    piece_use uses[];
} piece;

/* ---- how long it takes ---- */

struct work_time {
    int holders; /* atomic */
    double seconds;
};

work_time *
work_time_new(void)
{
    work_time *time = malloc(sizeof *time);
    if (time != NULL) {
        *time = (work_time){1, NAN};
    }
    return time;
}

void
work_time_release(work_time *time)
{
    if (time != NULL && __atomic_sub_fetch(&time->holders, 1, __ATOMIC_ACQ_REL) == 0) {
        free(time);
    }
}

double
work_time_seconds(const work_time *time)
{
    return time->seconds;
}

/* ---- when the GPU is done ---- */

static void
note_times(const piece *done, bridge_commands *commands, bool has_failed)
{
    bridge_times times;
    if (done->number == 0 && (done->time == NULL || has_failed)) {
        return;
    }
    bridge_commands_times(commands, &times);
    if (done->time != NULL && !has_failed) {
        done->time->seconds = times.ended - times.started;
    }
    timeline_end(done->number, times.scheduled, times.started, times.ended, has_failed);
}

/* The order matters: a thread that finds the buffer free must find the failure too, and one
 * that is woken must find nothing of ours alive, and the time. */
static void
clean_up(void *context, bridge_commands *commands, bridge_status status,
         const bridge_error *error)
{
    piece *done = context;
    bool has_failed = status != BRIDGE_OK;
    if (has_failed) {
        stream_note_failure(done->stream, error);
    }
    note_times(done, commands, has_failed);
    work_time_release(done->time);
    /* A failed command buffer may have signalled nothing, and other queues wait. */
    bridge_event_raise(done->stream->event, done->value);
    for (int i = 0; i < done->count; i++) {
        piece_use *use = &done->uses[i];
        use->handle = use->storage->handle;
        /* for the thread that takes it from the pool, or finds nothing in flight */
        WATCH_LEAVE(use->handle);
        use->owner = tracking_let_go(use->handle);
        storage_release(use->storage);
    }
    for (int i = 0; i < done->count; i++) {
        const piece_use *use = &done->uses[i];
        tracking_end(use->handle, done->stream, done->value, has_failed, use->owner);
    }
    stream_complete(done->stream, done->value);
    stream_release(done->stream);
    free(done);
}

/* ---- submitting ---- */

/* A moment of foreign work. */
typedef struct event_wait {
    bridge_event *event; /* NULL: none */
    uint64_t value;
} event_wait;

/* What is to be encoded. */
typedef struct piece_plan {
    work_look look;
    event_wait first;
    const work_operand *operands;
    int count;
    work_encoder *encode; /* NULL: nothing */
    void *context;
    work_time *time; /* borrowed; NULL: nobody asks */
} piece_plan;

/* The first operand that is written, and the first that is not.  Behind the lock that orders submissions: the
 * timeline's order is that of the streams' values. */
static uint64_t
record_piece(const metal_stream *stream, const piece_plan *plan)
{
    timeline_record record = {.kind = (uint8_t)plan->look.kind,
                              .stream = stream->serial,
                              .value = stream->submitted + 1,
                              .nbytes = plan->look.nbytes,
                              .dst_mode = TIMELINE_CPU,
                              .src_mode = TIMELINE_CPU,
                              .scheduled = NAN,
                              .started = NAN,
                              .ended = NAN};
    for (int i = plan->count; i-- > 0;) {
        const metal_storage *storage = plan->operands[i].storage;
        if (plan->operands[i].is_written) {
            record.dst = storage->handle;
            record.dst_mode = storage->mode;
        }
        else {
            record.src = storage->handle;
            record.src_mode = storage->mode;
        }
    }
    uint64_t number;
    if (!timeline_add(&record, NULL, &number)) {
        timeline_queue queue = {.stream = stream->serial, .event = stream->event};
        bridge_queue_copy_label(stream->queue, queue.label, sizeof queue.label);
        (void)timeline_add(&record, &queue, &number);
    }
    return number;
}

bool
work_encode_wait(bridge_commands *commands, bridge_event *event, uint64_t value)
{
    /* mutant survives (condition never): a wait that is over: only slower */
    if (value <= bridge_event_value(event)) {
        return false;
    }
    bridge_encode_wait(commands, event, value);
    return true;
}

/* What the piece waits for before it begins, `count` moments of other work among it; returns
 * whether it waits at all.
 *
 * Apple's pages disagree whether a wait holds back the command buffers behind it.  Where it does
 * not, the next piece would overtake one that waits, and its signal would tell of work that has
 * not begun: so each piece waits for the last one that did, until that is done.  SPEC
 * MTLCommandBuffer encodeWaitForEvent:value:; wgpu pull request 9483 */
static bool
encode_waits(bridge_commands *commands, const metal_stream *stream, const event_wait *first,
             const tracking_before *before, int count, uint64_t number)
{
    int waits = count;
    if (stream->waiting > __atomic_load_n(&stream->completed, __ATOMIC_ACQUIRE)) {
        waits += work_encode_wait(commands, stream->event, stream->waiting);
    }
    if (first->event != NULL) {
        bridge_encode_wait(commands, first->event, first->value);
        timeline_held(number, (timeline_record){.event = first->event, .value = first->value});
        waits++;
    }
    for (int i = 0; i < count; i++) {
        const stream_mark *mark = &before[i].mark;
        bridge_encode_wait(commands, mark->stream->event, mark->value);
        timeline_held(number, (timeline_record){.stream = mark->stream->serial,
                                                .value = mark->value,
                                                .dst = before[i].buffer});
    }
    return waits > 0;
}

/* Returns the value.  From the last line on the work is the clean-up's. */
static uint64_t
commit(bridge_commands *commands, piece *work, const work_operand *operands, bool waits)
{
    uint64_t value = work->value = ++work->stream->submitted;
    if (waits) {
        work->stream->waiting = value;
    }
    for (int i = 0; i < work->count; i++) {
        storage_retain(operands[i].storage);
        work->uses[i].storage = operands[i].storage;
    }
    tracking_begin_locked(operands, work->count, work->stream, value);
    stream_retain(work->stream);
    bridge_commands_commit(commands, work->stream->event, value, clean_up, work);
    return value;
}

/* Behind the lock that orders submissions: tracking.c says what comes first, the encoder what is
 * done, and tracking.c learns of it. */
static bridge_status
encode_and_commit_locked(bridge_commands *commands, piece *work, const piece_plan *plan,
                         uint64_t *value)
{
    tracking_before *before = (tracking_before *)(void *)&work->uses[plan->count];
    int count = tracking_prepare_locked(work->stream, plan->operands, plan->count, before);
    if (count < 0) {
        return BRIDGE_NO_MEMORY;
    }
    uint64_t number = work->number = timeline_on() ? record_piece(work->stream, plan) : 0;
    bool waits = encode_waits(commands, work->stream, &plan->first, before, count, number);
    bridge_status status =
        plan->encode == NULL ? BRIDGE_OK : plan->encode(commands, plan->context);
    if (status != BRIDGE_OK) {
        tracking_cancel_locked(plan->operands, plan->count);
        timeline_drop(number);
        return status;
    }
    if (plan->time != NULL) {
        (void)__atomic_add_fetch(&plan->time->holders, 1, __ATOMIC_RELAXED);
    }
    *value = commit(commands, work, plan->operands, waits);
    if (number != 0) {
        timeline_committed(number);
    }
    return BRIDGE_OK;
}

static bridge_status
submit(metal_stream *stream, const piece_plan *plan, uint64_t *value)
{
    *value = 0;
    /* Behind the uses is room for what comes first. */
    size_t per_operand = sizeof(piece_use) + TRACKING_MARKS * sizeof(tracking_before);
    piece *work = malloc(sizeof *work + (size_t)plan->count * per_operand);
    /* Before the lock: it blocks while the queue is full, and the clean-up wants the lock. */
    bridge_commands *commands = work == NULL ? NULL : bridge_commands_new(stream->queue);
    if (commands == NULL) {
        bridge_status status = work == NULL ? BRIDGE_NO_MEMORY : stream_default_status();
        free(work);
        return status;
    }
    *work = (piece){.stream = stream, .time = plan->time, .count = plan->count};
    lock_take(LOCK_TRACKING);
    bridge_status status = encode_and_commit_locked(commands, work, plan, value);
    lock_drop(LOCK_TRACKING);
    if (status != BRIDGE_OK) {
        bridge_commands_release(commands);
        free(work);
    }
    return status;
}

bridge_status
work_submit(metal_stream *stream, work_look look, const work_operand *operands, int count,
            work_encoder *encode, void *context, work_time *time, uint64_t *value)
{
    piece_plan plan = {.look = look,
                       .operands = operands,
                       .count = count,
                       .encode = encode,
                       .context = context,
                       .time = time};
    return submit(stream, &plan, value);
}

/* ---- copies and fills ---- */

typedef struct copy_job {
    bridge_buffer *src, *dst;
    const bridge_run *runs;
    size_t count;
} copy_job;

static bridge_status
encode_copy(bridge_commands *commands, void *context)
{
    const copy_job *job = context;
    return bridge_encode_copies(commands, job->src, job->dst, job->runs, job->count);
}

bridge_status
work_copy(metal_stream *stream, metal_storage *src, metal_storage *dst, const bridge_run *runs,
          size_t count, uint64_t *value)
{
    copy_job job = {src->handle, dst->handle, runs, count};
    const work_operand operands[] = {{src, false}, {dst, true}};
    work_look look = {TIMELINE_COPY, 0};
    for (size_t i = 0; timeline_on() && i < count; i++) {
        look.nbytes += runs[i].nbytes;
    }
    return work_submit(stream, look, operands, 2, encode_copy, &job, NULL, value);
}

typedef struct fill_job {
    bridge_buffer *dst;
    size_t offset_bytes, nbytes;
    uint8_t byte;
} fill_job;

static bridge_status
encode_fill(bridge_commands *commands, void *context)
{
    const fill_job *job = context;
    return bridge_encode_fill(commands, job->dst, job->offset_bytes, job->nbytes, job->byte);
}

bridge_status
work_fill(metal_stream *stream, metal_storage *dst, size_t offset_bytes, size_t nbytes,
          uint8_t byte, uint64_t *value)
{
    fill_job job = {dst->handle, offset_bytes, nbytes, byte};
    work_operand operand = {dst, true};
    return work_submit(stream, (work_look){TIMELINE_FILL, nbytes}, &operand, 1, encode_fill,
                       &job, NULL, value);
}

/* ---- marks and waits ---- */

bridge_status
work_mark(metal_stream *stream, uint64_t *value)
{
    return work_submit(stream, (work_look){TIMELINE_MARK, 0}, NULL, 0, NULL, NULL, NULL, value);
}

uint64_t
work_count_submitted(const metal_stream *stream)
{
    lock_take(LOCK_TRACKING);
    uint64_t submitted = stream->submitted;
    lock_drop(LOCK_TRACKING);
    return submitted;
}

bool
work_is_done(metal_stream *stream)
{
    return stream_has_reached(stream, work_count_submitted(stream));
}

/* The compiler must not see that nothing is written, or Metal would not count it as a write. */
static device_kernel touch = {
    .source = "#include <metal_stdlib>\n"
              "using namespace metal;\n"
              "kernel void\n"
              "metal_dlpack_touch(device uchar *bytes [[buffer(0)]],\n"
              "                   constant uint &count [[buffer(1)]],\n"
              "                   uint position [[thread_position_in_grid]])\n"
              "{\n"
              "    if (position < count) {\n"
              "        bytes[position] = 0;\n"
              "    }\n"
              "}\n",
    .name = "metal_dlpack_touch",
};

bool
work_can_touch(const device_record *device)
{
    bridge_kernel *kernel;
    return device_kernel_load(&touch, device, &kernel) == BRIDGE_OK;
}

bridge_status
work_touch(bridge_commands *commands, const metal_storage *storage)
{
    static const uint32_t count = 0;
    static const bridge_grid grid = {.size = {1, 1, 1}};
    const bridge_argument arguments[] = {
        {.index = 0, .buffer = storage->handle},
        {.index = 1, .bytes = &count, .nbytes = sizeof count},
    };
    return bridge_encode_kernel(commands, false, touch.made[storage->device->index], arguments,
                                2, &grid);
}

static bridge_status
encode_touch(bridge_commands *commands, void *context)
{
    return work_touch(commands, context);
}

/* A piece of no work: whoever uses the storage on the queue later waits for what it waits for.
 * `storage` may be NULL, or without bytes. */
static bridge_status
submit_wait(metal_stream *stream, event_wait first, metal_storage *storage)
{
    work_operand operand = {storage, true};
    int count = storage != NULL && storage->handle != NULL;
    bool can_touch =
        count > 0 && storage->device == stream->device && work_can_touch(stream->device);
    piece_plan plan = {.look = {TIMELINE_WAIT, 0},
                       .first = first,
                       .operands = &operand,
                       .count = count,
                       .encode = can_touch ? encode_touch : NULL,
                       .context = storage};
    uint64_t value;
    return submit(stream, &plan, &value);
}

bridge_status
work_wait_event(metal_stream *stream, bridge_event *event, uint64_t value,
                metal_storage *storage)
{
    return submit_wait(stream, (event_wait){event, value}, storage);
}

bridge_status
work_mark_storage(metal_stream *stream, metal_storage *storage, stream_mark *out)
{
    bridge_status status = BRIDGE_OK;
    tracking_before before[TRACKING_MARKS];
    int count = 0;
    if (storage->handle != NULL && !tracking_is_quiet(storage->handle)) {
        lock_take(LOCK_TRACKING);
        count = tracking_list_locked(storage->handle, NULL, before);
        *out = count == 1 ? before[0].mark : (stream_mark){.stream = stream};
        stream_retain(out->stream); /* under the lock: the mark is only borrowed there */
        lock_drop(LOCK_TRACKING);
    }
    else {
        *out = (stream_mark){.stream = stream};
        stream_retain(stream);
    }
    if (count > 1) {
        work_operand operand = {storage, true};
        status = work_submit(stream, (work_look){TIMELINE_MARK, 0}, &operand, 1, NULL, NULL,
                             NULL, &out->value);
        if (status != BRIDGE_OK) { /* unreached: no test makes it fail here */
            stream_release(stream);
            *out = (stream_mark){.stream = NULL};
        }
    }
    return status;
}

bridge_status
work_wait_storage(metal_stream *stream, metal_storage *storage)
{
    if (storage->handle == NULL || tracking_is_quiet(storage->handle)) {
        return BRIDGE_OK;
    }
    /* A user of the stream may write: the wait counts as a write. */
    lock_take(LOCK_TRACKING);
    tracking_before before[TRACKING_MARKS];
    int count = tracking_list_locked(storage->handle, stream, before);
    lock_drop(LOCK_TRACKING);
    if (count == 0) {
        return BRIDGE_OK;
    }
    return submit_wait(stream, (event_wait){NULL, 0}, storage);
}
