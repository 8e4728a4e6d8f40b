/* kernel_launch.c: submits a call of a kernel, and orders it with what is in flight.
 *
 *     who wrote the argument     before the kernel                after it
 *     ────────────────────────   ──────────────────────────────   ─────────────────────────────
 *     copies, fills, kernels     the GPU keeps the order          tracking.h knows it: whoever
 *                                                                 touches the bytes waits
 *     torch on a Mac             the stream waits for torch's     torch's queue waits for the
 *                                queue, on the GPU                stream, on the GPU
 *     any other framework        as from_dlpack(x, stream=)       the CPU waits; not where the
 *                                                                 caller named a stream
 *
 * Owns:    nothing beyond a call.
 * Calls:   work.h to submit, exchange/foreign_types.h for who can wait on the GPU.
 * Threads: the GIL is held; released while submitting and waiting.
 */
#include "kernels/kernel_call.h"
#include "kernels/kernel_object.h"

#include "exchange/foreign_types.h"
#include "python/args.h"
#include "python/call_python.h"
#include "python/errors.h"
#include "python/waiting.h"
#include "streams/stream_object.h"

/* ---- a call ---- */

/* The stream that was named, the current one, or the device's own. */
static int
choose_stream(kernel_call *call)
{
    const KernelObject *self = call->kernel;
    if (stream_convert_target(call->state, self->function, call->launch[LAUNCH_stream],
                              &call->stream) < 0) {
        return -1;
    }
    call->is_stream_named = call->stream != NULL;
    if (!call->is_stream_named) {
        call->stream = stream_default_taken(call->state, self->function, self->device);
        if (call->stream == NULL) {
            return -1;
        }
    }
    if (call->stream->device != self->device) {
        return errors_raise(
            PyExc_ValueError,
            "%s: the stream is on metal:%d, the kernel on metal:%d; give a stream of "
            "its device.",
            self->function, call->stream->device->index, self->device->index);
    }
    return 0;
}

static void
begin_call(kernel_call *call, PyObject *kernel)
{
    call->kernel = kernel_cast(kernel);
    call->state = state_of(kernel);
    call->stream = NULL;
    call->outputs = NULL;
    call->lists = NULL;
    call->arguments = call->few.arguments;
    call->operands = call->few.operands;
    call->kept = call->few.kept;
    call->guests = call->few.guests;
    call->argument_count = call->operand_count = 0;
    call->kept_count = call->room_count = call->guest_count = 0;
}

static void
end_call(kernel_call *call)
{
    for (int i = 0; i < call->kept_count; i++) {
        Py_DECREF(call->kept[i]);
    }
    for (int i = 0; i < call->room_count; i++) {
        storage_release(call->rooms[i]); /* the work keeps it */
    }
    PyMem_Free(call->lists);
    stream_release(call->stream);
}

/* ---- submitting ---- */

typedef struct launch_job {
    const kernel_call *call;
    const bridge_grid *grid;
} launch_job;

static bridge_status
encode_launch(bridge_commands *commands, void *context)
{
    const launch_job *job = context;
    return bridge_encode_kernel(commands, true, job->call->kernel->kernel, job->call->arguments,
                                job->call->argument_count, job->grid);
}

static int
submit(kernel_call *call, const bridge_grid *grid, work_time *time, uint64_t *value)
{
    launch_job job = {call, grid};
    work_look look = {TIMELINE_KERNEL, 0};
    if (timeline_on()) {
        timeline_name(PyUnicode_AsUTF8(call->kernel->name));
    }
    bridge_status status =
        WITHOUT_GIL(work_submit(call->stream, look, call->operands, call->operand_count,
                                encode_launch, &job, time, value));
    return errors_check_status(call->state, call->kernel->function, status, NULL, 0);
}

static int
wait_until(const kernel_call *call, uint64_t value)
{
    return waiting_for_stream(call->state, call->kernel->function, call->stream, value,
                              STREAM_FOREVER) < 0
               ? -1
               : 0;
}

/* ---- frameworks whose tensors were given ---- */

static int
tell_guests(const kernel_call *call, uint64_t value)
{
    bool waits = false;
    for (int i = 0; i < call->guest_count; i++) {
        const kernel_guest *guest = &call->guests[i];
        int is_told =
            foreign_order_taker(call->state, Py_TYPE(guest->tensor), array_cast(guest->array));
        if (is_told < 0) {
            return -1;
        }
        waits |= is_told == 0;
    }
    return waits && !call->is_stream_named ? wait_until(call, value) : 0;
}

/* ---- a report ---- */

bool kernel_calls_are_told;

/* Which object is for which buffer.  What goes wrong is the report's, not the call's. */
static void
tell_call(const kernel_call *call)
{
    const KernelObject *self = call->kernel;
    PyObject *given = PyDict_New();
    for (Py_ssize_t i = 0; given != NULL && i < Py_SIZE(self); i++) {
        const kernel_parameter *parameter = &self->parameters[i];
        if (parameter->kind != BRIDGE_PARAMETER_BUFFER || parameter->is_unlisted ||
            call->values[i] == NULL) {
            continue;
        }
        PyObject *index = PyLong_FromUnsignedLong(parameter->index);
        if (index == NULL || PyDict_SetItem(given, index, call->values[i]) < 0) {
            Py_CLEAR(given);
        }
        Py_XDECREF(index);
    }
    Py_XDECREF(given == NULL ? NULL : call_python(CALL_REPORT_CALL, self->name, given));
    PyErr_Clear();
    Py_XDECREF(given);
}

/* ---- the whole ---- */

/* Submit, wait, and ask how long the GPU took. */
static int
run_timed(kernel_call *call, const bridge_grid *grid, uint64_t *value, double *seconds)
{
    work_time *time = work_time_new();
    if (time == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int result = submit(call, grid, time, value);
    if (result == 0) {
        result = wait_until(call, *value);
    }
    *seconds = work_time_seconds(time);
    work_time_release(time);
    return result;
}

static int
run(kernel_call *call, double *seconds)
{
    bridge_grid grid;
    uint64_t value;
    int has_threads = kernel_call_read_grid(call, &grid);
    if (has_threads < 0 || choose_stream(call) < 0 || kernel_call_bind(call) < 0 ||
        kernel_call_bind_resources(call) < 0) {
        return -1;
    }
    if (has_threads == 0) {
        return 0;
    }
    if (__builtin_expect(kernel_calls_are_told, 0)) {
        tell_call(call);
    }
    int result = seconds == NULL ? submit(call, &grid, NULL, &value)
                                 : run_timed(call, &grid, &value, seconds);
    return result == 0 && call->guest_count > 0 ? tell_guests(call, value) : result;
}

PyObject *
kernel_call_launch(PyObject *kernel, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                   double *seconds)
{
    kernel_call call;
    begin_call(&call, kernel);
    int result = kernel_call_read(&call, args, nargs, kwnames);
    if (result == 0) {
        result = run(&call, seconds);
    }
    end_call(&call);
    if (result < 0) {
        Py_XDECREF(call.outputs);
        return NULL;
    }
    return call.outputs == NULL ? Py_NewRef(Py_None) : call.outputs;
}
