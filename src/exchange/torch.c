/* torch.c: see torch.h.
 *
 * Owns:    for each of torch's dispatch queues a shared event, whose values that queue signals.
 * Calls:   metal_dlpack/torch_facts.py for what torch is here, one call;
 *          torch::mps::get_command_buffer, get_dispatch_queue and commit, dispatch_sync_f and
 *          dispatch_retain, all found by dlsym: nothing here links to torch.  metal_bridge.h to
 *          encode, and for the autorelease pool that torch's functions need.
 * Streams: each torch stream has a dispatch queue and a command queue.  Until 2.14 the three
 *          functions are about the default stream, from 2.15 on about the one of 33 that is
 *          current on the thread that calls them.
 * Source:  torch/include/torch/mps.h, ATen/mps/MPSStream.h;
 *          PyTorch's tutorial on custom MPS kernels encodes inside dispatch_sync.  torch's macOS
 *          binaries: get_command_buffer and commit of 2.14.1 begin with getDefaultMPSStream, those
 *          of 2.15.0 with getCurrentMPSStream and dispatch_assert_queue, which ends the process on
 *          any queue but that stream's.
 */
#include "exchange/torch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "metal/work.h"
#include "python/call_python.h"
#include "python/errors.h"
#include "streams/device.h"
#include "streams/event_type.h"

/* ---- may our Metal memory go to torch? ---- */

/* Is it an MTLBuffer, which torch holds by itself and not by its address? */
static bool
is_buffer(PyObject *pointer)
{
    void *handle = PyLong_AsVoidPtr(pointer);
    PyErr_Clear(); /* a number that is no address is no buffer */
    return bridge_handle_is_buffer(handle);
}

/* SPEC export-torch */
int
torch_check_memory(md_state *state, const char *function)
{
    PyObject *own, *ours, *version;
    if (state->torch_is_checked) {
        return 0;
    }
    PyObject *answer = call_python(CALL_TORCH_POINTERS, NULL, NULL);
    if (answer == NULL || !PyTuple_Check(answer)) {
        state->torch_is_checked = answer == Py_True;
        Py_XDECREF(answer);
        return answer == NULL ? -1 : 0;
    }
    int result = PyArg_ParseTuple(answer, "OOO", &own, &ours, &version) ? 0 : -1;
    if (result == 0 && is_buffer(own) != is_buffer(ours)) {
        PyErr_Format(PyExc_BufferError,
                     "%s: torch %S reads the data of a Metal tensor as an address, but DLPack "
                     "says that it is the MTLBuffer: torch would read and write other memory.  "
                     "Pass x.host, for a tensor on the CPU.",
                     function, version);
        result = -1;
    }
    state->torch_is_checked = result == 0;
    Py_DECREF(answer);
    return result;
}

/* Importing torch adds some thousand modules: where their number is the same, it was not. */
static bool
is_torch_imported(md_state *state)
{
    PyObject *modules = PyImport_GetModuleDict();
    Py_ssize_t count = PyDict_GET_SIZE(modules);
    if (state->modules_without_torch >= 0 && state->modules_without_torch != count) {
        bool is_found = PyDict_GetItem(modules, state->str_torch) != NULL;
        state->modules_without_torch = is_found ? -1 : count;
    }
    /* mutant survives (bound): there is a module, always */
    return state->modules_without_torch < 0;
}

/* Does the Python function that called us stand in a module of torch's?  That of
 * torch.from_dlpack is torch.utils.dlpack. */
static bool
is_asked_by_torch(const md_state *state)
{
    static const char package[] = "torch.";
    PyObject *globals = PyEval_GetGlobals();
    PyObject *name = globals == NULL ? NULL : PyDict_GetItem(globals, state->str___name__);
    if (name == NULL || !PyUnicode_Check(name) || !PyUnicode_IS_COMPACT_ASCII(name)) {
        return false;
    }
    const char *text = (const char *)PyUnicode_1BYTE_DATA(name);
    return strncmp(text, package, sizeof package - 1) == 0;
}

/* SPEC export-torch */
int
torch_check_asker(md_state *state)
{
    if (!is_torch_imported(state) || !is_asked_by_torch(state)) {
        return 0;
    }
    return torch_check_memory(state, "Array.__dlpack__");
}

/* ---- torch's functions ---- */

/* The names as C++ writes them: torch::mps::get_command_buffer() and so on. */
#define GET_COMMAND_BUFFER "_ZN5torch3mps18get_command_bufferEv"
#define GET_DISPATCH_QUEUE "_ZN5torch3mps18get_dispatch_queueEv"
#define COMMIT "_ZN5torch3mps6commitEv"

typedef struct torch_functions {
    /* borrowed, autoreleased when made; ends torch's open encoder first */
    bridge_commands *(*get_command_buffer)(void);
    void *(*get_dispatch_queue)(void); /* the serial queue on which torch encodes */
    void (*commit)(void);
    void (*dispatch_sync)(void *queue, void *context, void (*work)(void *context));
    void (*dispatch_retain)(void *queue);
} torch_functions;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static torch_functions functions; /* behind the lock; NULLs: not found */

/* A function by its name: `place` is the address of a function pointer.  SPEC POSIX dlsym. */
static bool
find_function(void *library, const char *name, void *place)
{
    void *address = dlsym(library, name);
    *(void **)place = address;
    return address != NULL;
}

/* What was found before is forgotten. */
bool
torch_open(const char *library)
{
    /* Only what is loaded: a second torch would have a queue that nobody uses. */
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    torch_functions found = {0};
    bool is_found = handle != NULL &&
                    find_function(handle, GET_COMMAND_BUFFER, &found.get_command_buffer) &&
                    find_function(handle, GET_DISPATCH_QUEUE, &found.get_dispatch_queue) &&
                    find_function(handle, COMMIT, &found.commit) &&
                    find_function(handle, "dispatch_sync_f", &found.dispatch_sync) &&
                    find_function(handle, "dispatch_retain", &found.dispatch_retain);
    (void)pthread_mutex_lock(&lock);
    functions = is_found ? found : (torch_functions){0};
    (void)pthread_mutex_unlock(&lock);
    if (!is_found && handle != NULL) {
        (void)dlclose(handle);
    }
    return is_found;
}

/* ---- torch's dispatch queues ---- */

/* One of them, and the event that it signals.  With one event for all, a value would say
 * "done" too early: a queue that signals 2 passes another that has not signalled 1. */
typedef struct torch_queue {
    struct torch_queue *next;
    void *dispatch_queue; /* owned (+1): its address becomes no other queue's */
    bridge_event *event;  /* owned (+1) */
    /* both used on the dispatch queue only */
    uint64_t value;   /* the last one asked for */
    uint64_t waiting; /* the last one that comes behind a wait */
} torch_queue;

/* Behind the lock, kept for ever: torch's streams live as long as the process. */
static torch_queue *queues;

static torch_queue *
find_queue_locked(const void *dispatch_queue)
{
    torch_queue *queue = queues;
    while (queue != NULL && queue->dispatch_queue != dispatch_queue) {
        queue = queue->next;
    }
    return queue;
}

/* NULL: no memory, or Metal gave no event. */
static torch_queue *
add_queue_locked(void *dispatch_queue, bridge_device *device)
{
    torch_queue *queue = calloc(1, sizeof *queue);
    bridge_event *event = queue == NULL ? NULL : bridge_event_new(device);
    if (event == NULL) {
        free(queue);
        return NULL;
    }
    functions.dispatch_retain(dispatch_queue);
    *queue = (torch_queue){.next = queues, .dispatch_queue = dispatch_queue, .event = event};
    queues = queue;
    return queue;
}

/* The queue of the calling thread's current stream: borrowed, for ever.  NULL: as above, or
 * torch's functions are missing. */
static torch_queue *
current_queue_locked(bridge_device *device)
{
    void *dispatch_queue =
        functions.get_dispatch_queue == NULL ? NULL : functions.get_dispatch_queue();
    if (dispatch_queue == NULL) {
        return NULL;
    }
    torch_queue *queue = find_queue_locked(dispatch_queue);
    return queue != NULL ? queue : add_queue_locked(dispatch_queue, device);
}

/* ---- encoding on a dispatch queue ---- */

/* One thing to encode, carried to a dispatch queue. */
typedef struct torch_job {
    torch_functions functions;
    torch_queue *queue;
    bridge_event *event; /* of a signal: the queue's, when it is encoded */
    uint64_t value;
    metal_storage *touched; /* of a wait: borrowed; NULL: Metal has no kernel for it */
    bool is_signal;
    bool is_encoded;
} torch_job;

/* The next value of the queue's event, behind all that is encoded, and reached even if torch's
 * command buffer fails: torch tells of that itself.  The dispatch queue is serial: values reach
 * the command queue in their order. */
static void
encode_value(bridge_commands *commands, torch_queue *queue, bool waits)
{
    queue->value += 1;
    queue->waiting = waits ? queue->value : queue->waiting;
    bridge_encode_signal(commands, queue->event, queue->value);
    bridge_raise_when_completed(commands, queue->event, queue->value);
}

static void
encode_job(void *context)
{
    torch_job *job = context;
    const torch_functions *found = &job->functions;
    torch_queue *queue = job->queue;
    /* dispatch_sync_f runs this on the thread that called it, where it can.  Another thread may
     * have another current stream, whose command buffer would be the wrong one. */
    bool is_current = found->get_dispatch_queue() == queue->dispatch_queue;
    bridge_commands *commands = is_current ? found->get_command_buffer() : NULL;
    if (commands == NULL) {
        return;
    }
    job->is_encoded = true;
    /* As a piece of work.c's: whatever a wait holds back, the queue or its command buffer, no
     * value may tell of work that waits. */
    bool waits = work_encode_wait(commands, queue->event, queue->waiting);
    if (!job->is_signal) {
        bridge_encode_wait(commands, job->event, job->value);
        if (job->touched != NULL) { /* torch's next command buffer must wait too */
            (void)work_touch(commands, job->touched);
        }
        encode_value(commands, queue, true);
        return;
    }
    encode_value(commands, queue, waits);
    job->event = queue->event;
    job->value = queue->value;
    found->commit(); /* or the signal would wait for torch's next synchronisation */
}

/* torch's functions autorelease on the thread that runs the job, so the pool is made there.
 * Without it their objects leak on Python's main thread, which never drains. */
static void
encode_in_pool(void *context)
{
    bridge_in_pool(encode_job, context);
}

static bridge_status
run_job(const device_record *device, torch_job *job)
{
    if (bridge_is_forked()) {
        return BRIDGE_FORKED;
    }
    (void)pthread_mutex_lock(&lock);
    job->functions = functions;
    job->queue = current_queue_locked(device->handle);
    (void)pthread_mutex_unlock(&lock);
    if (job->queue == NULL) {
        return BRIDGE_NO_COMMAND;
    }
    job->functions.dispatch_sync(job->queue->dispatch_queue, job, encode_in_pool);
    return job->is_encoded ? BRIDGE_OK : BRIDGE_NO_COMMAND;
}

/* Make torch commit what it has encoded on its current stream, and signal an event behind it.
 * `*event` is +1, and reaches `*value` when all that this stream was given so far is finished.
 */
static bridge_status
signal_nogil(const device_record *device, bridge_event **event, uint64_t *value)
{
    torch_job job = {.is_signal = true};
    *event = NULL;
    bridge_status status = run_job(device, &job);
    if (status == BRIDGE_OK) {
        bridge_event_retain(job.event);
        *event = job.event;
        *value = job.value;
    }
    return status;
}

/* What torch encodes on its current stream from now on waits, on the GPU, for our work in
 * flight on the storage. */
static bridge_status
wait_nogil(metal_storage *storage)
{
    metal_stream *stream = stream_default(storage->device);
    stream_mark mark = {0};
    bridge_status status =
        stream == NULL ? stream_default_status() : work_mark_storage(stream, storage, &mark);
    if (status == BRIDGE_OK && mark.value > 0) {
        torch_job job = {.event = mark.stream->event,
                         .value = mark.value,
                         .touched = work_can_touch(storage->device) ? storage : NULL};
        status = run_job(storage->device, &job);
    }
    stream_release(mark.stream);
    return status;
}

/* ---- the two hand-overs ---- */

int
torch_signal(md_state *state, PyObject **moment)
{
    const device_record *device = device_convert(state, "from_dlpack", NULL);
    PyObject *op = device == NULL ? NULL : event_new_object(state);
    *moment = NULL;
    if (op == NULL) {
        return -1;
    }
    bridge_status status =
        WITHOUT_GIL(signal_nogil(device, &event_cast(op)->event, &event_cast(op)->value));
    if (status != BRIDGE_OK) {
        Py_DECREF(op);
        (void)errors_from_bridge(state, "torch's queue", status, NULL, 0);
        return -1;
    }
    *moment = op;
    return 0;
}

int
torch_wait(md_state *state, ArrayObject *array)
{
    bridge_status status = WITHOUT_GIL(wait_nogil(array_storage(array)));
    return errors_check_status(state, "torch's queue", status, NULL, 0);
}
