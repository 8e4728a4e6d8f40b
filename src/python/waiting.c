/* waiting.c: see waiting.h. */
#include "python/waiting.h"

#include "python/args.h"
#include "python/errors.h"

/* Blocks for at most a slice.  True: it is reached. */
typedef bool (*wait_slice)(void *what, uint64_t value, uint64_t slice_ns);

static bool
wait_for_stream(void *what, uint64_t value, uint64_t slice_ns)
{
    return stream_wait(what, value, slice_ns);
}

static bool
wait_for_event(void *what, uint64_t value, uint64_t slice_ns)
{
    bridge_event *event = what;
    /* Metal counts in milliseconds; rounded up, or a short rest would be none. */
    return bridge_event_value(event) >= value ||
           bridge_event_wait(event, value, (slice_ns + 999999) / 1000000);
}

/* What a thread waits for, and why. */
typedef struct awaited {
    wait_slice wait;
    void *what;
    uint64_t value;
    const char *function;       /* NULL: not known */
    const bridge_buffer *about; /* NULL: no buffer's */
} awaited;

static void
show_wait(const awaited *it, double started)
{
    bool is_stream = it->wait == wait_for_stream;
    timeline_waited(started, it->function,
                    (timeline_record){
                        .stream = is_stream ? ((metal_stream *)it->what)->serial : 0,
                        .event = is_stream ? NULL : it->what,
                        .value = it->value,
                        .dst = it->about,
                    });
}

static int
wait_in_slices(const awaited *it, uint64_t timeout_ns)
{
    bool is_reached = it->wait(it->what, it->value, 0);
    double started = is_reached || timeout_ns == 0 ? 0 : timeline_begin();
    int result = 0;
    while (!is_reached && timeout_ns > 0 && result == 0) {
        uint64_t slice_ns = timeout_ns < WAITING_SLICE_NS ? timeout_ns : WAITING_SLICE_NS;
        is_reached = WITHOUT_GIL(it->wait(it->what, it->value, slice_ns));
        if (timeout_ns != STREAM_FOREVER) {
            timeout_ns -= slice_ns;
        }
        if (!is_reached) {
            result = PyErr_CheckSignals();
        }
    }
    if (started != 0) {
        show_wait(it, started);
    }
    return result < 0 ? -1 : is_reached;
}

static int
wait_for_value(md_state *state, const char *function, metal_stream *stream, uint64_t value,
               uint64_t timeout_ns, const bridge_buffer *about)
{
    if (!stream_has_reached(stream, value) && bridge_is_forked()) {
        return errors_check_status(state, function, BRIDGE_FORKED, NULL, 0);
    }
    return wait_in_slices(&(awaited){wait_for_stream, stream, value, function, about},
                          timeout_ns);
}

static int
wait_for_work(md_state *state, const char *function, metal_stream *stream, uint64_t value,
              uint64_t timeout_ns, const bridge_buffer *about)
{
    bridge_error error;
    bridge_error_clear(&error);
    int result = wait_for_value(state, function, stream, value, timeout_ns, about);
    if (result == 1 && tracking_take_failure(stream, &error)) {
        return errors_check_status(state, function, BRIDGE_COMMAND_FAILED, &error, 0);
    }
    return result;
}

int
waiting_for_value(md_state *state, const char *function, metal_stream *stream, uint64_t value,
                  uint64_t timeout_ns)
{
    return wait_for_value(state, function, stream, value, timeout_ns, NULL);
}

int
waiting_for_stream(md_state *state, const char *function, metal_stream *stream, uint64_t value,
                   uint64_t timeout_ns)
{
    return wait_for_work(state, function, stream, value, timeout_ns, NULL);
}

int
waiting_for_event(bridge_event *event, uint64_t value, uint64_t timeout_ns)
{
    return wait_in_slices(&(awaited){wait_for_event, event, value, NULL, NULL}, timeout_ns);
}

int
waiting_for_busy_storage(md_state *state, const char *function, metal_storage *storage,
                         bool is_for_writing)
{
    const bridge_buffer *handle = storage->handle; /* compared only: the storage may go */
    stream_mark marks[TRACKING_MARKS];
    int count = tracking_copy_marks(handle, is_for_writing, marks);
    int result = 1;
    for (int i = 0; i < count && result == 1; i++) {
        result = (marks[i].is_of_earlier_owner ? wait_for_value
                                               : wait_for_work)(state, function,
                                                                marks[i].stream, marks[i].value,
                                                                STREAM_FOREVER, handle);
    }
    tracking_release_marks(marks, count);
    return result == 1 ? 0 : -1;
}

int
waiting_convert_timeout(const char *function, PyObject *value, uint64_t *out_ns)
{
    *out_ns = STREAM_FOREVER;
    if (!args_is_given(value)) {
        return 0;
    }
    double seconds = PyFloat_AsDouble(value);
    if (seconds == -1.0 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            (void)args_refuse_type(function, "timeout", "a number of seconds or None", value);
        }
        if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Format(PyExc_OverflowError,
                         "%s: timeout does not fit a float; pass None for no limit.", function);
        }
        return -1;
    }
    if (!(seconds >= 0)) {
        return errors_raise(PyExc_ValueError, "%s: timeout (%R seconds) must be 0 or more.",
                            function, value);
    }
    if (seconds < 1e9) { /* 30 years and more are for ever */
        *out_ns = (uint64_t)(seconds * 1e9);
    }
    return 0;
}
