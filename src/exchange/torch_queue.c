/* torch_queue.c: see torch_queue.h.
 *
 * Owns:    one shared event, whose values torch's queue signals.
 * Calls:   torch::mps::get_command_buffer, get_dispatch_queue and commit, and dispatch_sync_f,
 *          all found by dlsym: nothing here links to torch.  metal_bridge.h to encode.
 * Threads: the GIL is held, and released while torch's dispatch queue is waited for.
 * Source:  torch/include/torch/mps.h; PyTorch's tutorial on custom MPS kernels encodes inside
 *          dispatch_sync.
 */
#include "exchange/torch_queue.h"

#include <dlfcn.h>
#include <pthread.h>

#include "array/array.h"
#include "metal/work.h"
#include "python/errors.h"
#include "streams/device.h"
#include "streams/event_type.h"

/* ---- torch's functions ---- */

/* The names as C++ writes them: torch::mps::get_command_buffer() and so on. */
#define GET_COMMAND_BUFFER "_ZN5torch3mps18get_command_bufferEv"
#define GET_DISPATCH_QUEUE "_ZN5torch3mps18get_dispatch_queueEv"
#define COMMIT "_ZN5torch3mps6commitEv"

typedef struct torch_functions {
    /* borrowed; ends torch's open encoder first */
    bridge_commands *(*get_command_buffer)(void);
    void *(*get_dispatch_queue)(void); /* the serial queue on which torch encodes */
    void (*commit)(void);
    void (*dispatch_sync)(void *queue, void *context, void (*work)(void *context));
} torch_functions;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static torch_functions functions; /* behind the lock, as all below; NULLs: not found */
static bridge_event *torch_event; /* owned (+1) for ever; NULL: not made yet */
static uint64_t torch_value;      /* the last one that torch was asked to signal */

/* A function by its name: `place` is the address of a function pointer.  SPEC POSIX dlsym. */
static bool
find_function(void *library, const char *name, void *place)
{
    void *address = dlsym(library, name);
    *(void **)place = address;
    return address != NULL;
}

/* Look for the functions in a library that is loaded already.  False: some are missing; what
 * was found before is forgotten, and nothing below works. */
static bool
find_functions(const char *library)
{
    /* Only what is loaded: a second torch would have a queue that nobody uses. */
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    torch_functions found = {0};
    bool is_found = handle != NULL &&
                    find_function(handle, GET_COMMAND_BUFFER, &found.get_command_buffer) &&
                    find_function(handle, GET_DISPATCH_QUEUE, &found.get_dispatch_queue) &&
                    find_function(handle, COMMIT, &found.commit) &&
                    find_function(handle, "dispatch_sync_f", &found.dispatch_sync);
    (void)pthread_mutex_lock(&lock);
    functions = is_found ? found : (torch_functions){0};
    (void)pthread_mutex_unlock(&lock);
    if (!is_found && handle != NULL) {
        (void)dlclose(handle);
    }
    return is_found;
}

/* ---- encoding on torch's dispatch queue ---- */

/* One thing to encode, carried to torch's dispatch queue. */
typedef struct torch_job {
    const torch_functions *functions;
    bridge_event *event;
    uint64_t value;
    bool is_signal;
    bool is_encoded;
} torch_job;

static void
encode_job(void *context)
{
    torch_job *job = context;
    bridge_commands *commands = job->functions->get_command_buffer();
    if (commands == NULL) {
        return;
    }
    job->is_encoded = true;
    if (!job->is_signal) {
        bridge_encode_wait(commands, job->event, job->value);
        return;
    }
    bridge_encode_signal(commands, job->event, job->value);
    job->functions->commit(); /* or the signal would wait for torch's next synchronisation */
}

static bridge_status
run_job(const torch_functions *found, torch_job *job)
{
    void *queue = found->get_dispatch_queue == NULL ? NULL : found->get_dispatch_queue();
    if (queue == NULL || bridge_is_forked()) {
        return bridge_is_forked() ? BRIDGE_FORKED : BRIDGE_NO_COMMAND;
    }
    job->functions = found;
    found->dispatch_sync(queue, job, encode_job);
    return job->is_encoded ? BRIDGE_OK : BRIDGE_NO_COMMAND;
}

/* Make torch commit what it has encoded, and signal an event behind it.  `*event` is +1, and
 * reaches `*value` when all that torch was given so far is finished. */
static bridge_status
signal_nogil(const device_record *device, bridge_event **event, uint64_t *value)
{
    torch_job job = {.is_signal = true};
    *event = NULL;
    /* The lock is held to the end: values must reach torch's queue in their order. */
    (void)pthread_mutex_lock(&lock);
    if (torch_event == NULL) {
        torch_event = bridge_event_new(device->handle);
    }
    bridge_status status = BRIDGE_NO_COMMAND;
    if (torch_event != NULL) {
        job.event = torch_event;
        job.value = torch_value + 1;
        status = run_job(&functions, &job);
    }
    if (status == BRIDGE_OK) {
        torch_value = job.value;
        bridge_event_retain(torch_event);
        *event = torch_event;
        *value = job.value;
    }
    (void)pthread_mutex_unlock(&lock);
    return status;
}

/* What torch encodes from now on waits, on the GPU, for our work in flight on the storage. */
static bridge_status
wait_nogil(metal_storage *storage)
{
    metal_stream *stream = stream_default(storage->device);
    stream_mark mark = {0};
    bridge_status status =
        stream == NULL ? stream_default_status() : work_mark_storage(stream, storage, &mark);
    if (status == BRIDGE_OK && mark.value > 0) {
        torch_job job = {.event = mark.stream->event, .value = mark.value};
        (void)pthread_mutex_lock(&lock);
        torch_functions found = functions;
        (void)pthread_mutex_unlock(&lock);
        status = run_job(&found, &job);
    }
    stream_release(mark.stream);
    return status;
}

/* ---- for metal_dlpack/sync.py ---- */

PyDoc_STRVAR(
    torch_open_doc,
    "_torch_open($module, library, /)\n--\n\n"
    "Look for torch's queue in its loaded library.  True: the two functions below work.");

static PyObject *
core_torch_open(PyObject *Py_UNUSED(module), PyObject *library)
{
    PyObject *path;
    if (!PyUnicode_FSConverter(library, &path)) {
        return NULL;
    }
    bool is_found = find_functions(PyBytes_AS_STRING(path));
    Py_DECREF(path);
    return PyBool_FromLong(is_found);
}

PyDoc_STRVAR(torch_signal_doc,
             "_torch_signal($module, /)\n--\n\n"
             "The moment when all that torch was given on MPS so far is done, as an Event.");

static PyObject *
core_torch_signal(PyObject *module, PyObject *Py_UNUSED(unused))
{
    md_state *state = state_of_module(module);
    const device_record *device = device_convert(state, "from_dlpack", NULL);
    PyObject *op = device == NULL ? NULL : event_new_object(state);
    if (op == NULL) {
        return NULL;
    }
    bridge_status status;
    Py_BEGIN_ALLOW_THREADS
    status = signal_nogil(device, &event_cast(op)->event, &event_cast(op)->value);
    Py_END_ALLOW_THREADS
    if (status != BRIDGE_OK) {
        Py_DECREF(op);
        return errors_from_bridge(state, "torch's queue", status, NULL, 0);
    }
    return op;
}

PyDoc_STRVAR(
    torch_wait_doc,
    "_torch_wait($module, array, /)\n--\n\n"
    "What torch encodes from now on waits, on the GPU, for our work in flight on an Array.");

static PyObject *
core_torch_wait(PyObject *module, PyObject *op)
{
    md_state *state = state_of_module(module);
    if (!Py_IS_TYPE(op, state->array_type)) {
        return PyErr_Format(PyExc_TypeError, "_torch_wait: %.100s is not an Array.",
                            Py_TYPE(op)->tp_name);
    }
    bridge_status status;
    Py_BEGIN_ALLOW_THREADS
    status = wait_nogil(array_storage(array_cast(op)));
    Py_END_ALLOW_THREADS
    if (status != BRIDGE_OK) {
        return errors_from_bridge(state, "torch's queue", status, NULL, 0);
    }
    Py_RETURN_NONE;
}

PyMethodDef torch_queue_functions[] = {
    {"_torch_open", core_torch_open, METH_O, torch_open_doc},
    {"_torch_signal", core_torch_signal, METH_NOARGS, torch_signal_doc},
    {"_torch_wait", core_torch_wait, METH_O, torch_wait_doc},
    {NULL, NULL, 0, NULL},
};
