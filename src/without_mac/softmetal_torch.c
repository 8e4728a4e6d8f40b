/* softmetal_torch.c: gives metal_dlpack/torch_mps its table.
 *
 * Calls:   metal_bridge.h and storage.h, as any library beside ours would use Metal: its queue is not
 *          our stream, and what it does is ordered with our work as torch's is on a Mac.
 * Threads: any, without the GIL.
 */
#include "without_mac/without_mac.h"

#include "kernels/kernel_object.h"
#include "metal/pool.h"
#include "metal/storage.h"
#include "python/waiting.h"
#include "softmetal/settings.h"
#include "softmetal/softmetal.h"
#include "softmetal/torch/metal.h"
#include "without_mac/softmetal_turn.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Borrowed for ever; NULL: Metal has no device. */
static const device_record *
torch_device(void)
{
    return devices_count() > 0 ? devices_get(0) : NULL;
}

/* ---- memory ---- */

static void *
memory_new(size_t nbytes)
{
    void *address = storage_new_memory(nbytes);
    metal_storage *storage = address == NULL ? NULL : storage_find_memory(address, nbytes);
    if (storage != NULL) {
        storage_publish(storage); /* torch's queue uses it */
        storage_release(storage);
    }
    return address;
}

static void *
memory_handle(void *address, size_t nbytes)
{
    metal_storage *storage = storage_find_memory(address, nbytes);
    void *handle = storage != NULL && storage->address == address ? storage->handle : NULL;
    storage_release(storage);
    return handle;
}

static void *
buffer_contents(void *handle)
{
    return bridge_buffer_contents(handle);
}

static size_t
buffer_nbytes(void *handle)
{
    return bridge_buffer_nbytes(handle);
}

/* ---- a queue ---- */

static void *
queue_new(void)
{
    const device_record *device = torch_device();
    return device == NULL ? NULL : bridge_queue_new(device->handle);
}

static void *
commands_new(void *queue)
{
    return bridge_commands_new(queue);
}

/* What the kernel finds at index 1. */
typedef struct arrival {
    metal_arrive *arrive;
    void *context;
} arrival;

static void
use_memory(void *const *arguments, const size_t grid[3])
{
    const arrival *arrives = arguments[1];
    (void)grid;
    if (arrives->arrive != NULL) {
        arrives->arrive(arrives->context, arguments[0]);
    }
}

static device_kernel use = {
    .source = "kernel void metal_dlpack_torch_use(device uchar *bytes [[buffer(0)]]) {}\n",
    .name = "metal_dlpack_torch_use",
    .run = use_memory,
};

static bool
encode_use(void *commands, const metal_range *written, metal_arrive *arrive, void *context,
           const metal_range *read, int read_count)
{
    static const bridge_grid grid = {.size = {1, 1, 1}};
    arrival arrives = {arrive, context};
    bridge_argument arguments[2 + MOST_READS] = {
        {.index = 0, .bytes = &arrives, .nbytes = sizeof arrives}, /* nothing is written */
        {.index = 1, .bytes = &arrives, .nbytes = sizeof arrives},
    };
    bridge_kernel *kernel;
    if (written != NULL) {
        arguments[0] = (bridge_argument){.index = 0,
                                         .buffer = written->handle,
                                         .offset_bytes = written->offset,
                                         .nbytes = written->nbytes};
    }
    for (int i = 0; i < read_count && i < MOST_READS; i++) {
        arguments[2 + i] = (bridge_argument){.index = (unsigned)(2 + i),
                                             .buffer = read[i].handle,
                                             .offset_bytes = read[i].offset,
                                             .nbytes = read[i].nbytes};
    }
    bool is_encoded =
        device_kernel_load(&use, torch_device(), &kernel) == BRIDGE_OK &&
        bridge_encode_kernel(commands, false, kernel, arguments,
                             2 + (read_count < MOST_READS ? read_count : MOST_READS),
                             &grid) == BRIDGE_OK;
    if (is_encoded) {
        /* nobody knows when torch commits: a wait that is missing is missing from here on */
        softmetal_host_encoded(commands);
    }
    return is_encoded;
}

static const kernel_parameter *
find_parameter(const KernelObject *kernel, unsigned index)
{
    for (Py_ssize_t i = 0; i < Py_SIZE(kernel); i++) {
        const kernel_parameter *parameter = &kernel->parameters[i];
        if (parameter->kind == BRIDGE_PARAMETER_BUFFER && !parameter->is_unlisted &&
            parameter->index == index) {
            return parameter;
        }
    }
    return NULL;
}

static metal_parameter
kernel_parameter_at(void *kernel, unsigned index)
{
    const kernel_parameter *found = find_parameter(kernel_cast(kernel), index);
    if (found == NULL) {
        return (metal_parameter){.alignment = 1};
    }
    bool is_vector = found->type.lanes > 0 && found->type.columns == 0;
    size_t items_nbytes = (size_t)found->type.lanes * found->type.scalar.bits / 8;
    return (metal_parameter){
        .is_bound = true,
        .is_written = found->is_written,
        .alignment = found->alignment,
        .nbytes = found->nbytes,
        .least_nbytes =
            is_vector && items_nbytes < found->nbytes ? items_nbytes : found->nbytes,
    };
}

static void
tell_what_is_given(void *commands, const metal_argument *arguments, int count)
{
    for (const metal_argument *one = arguments; one < arguments + count; one++) {
        if (one->given != NULL) {
            softmetal_host_gave(commands, &(softmetal_given){.index = one->index,
                                                             .text = one->given,
                                                             .is_strided = one->is_strided,
                                                             .axes = one->axes,
                                                             .steps = one->steps,
                                                             .item_nbytes = one->item_nbytes});
        }
    }
}

static bool
encode_kernel(void *commands, void *kernel, const metal_argument *arguments, int count,
              const size_t threads[3], const size_t group[3])
{
    bridge_argument *bound = malloc((size_t)(count + 1) * sizeof *bound);
    if (bound == NULL) {
        return false;
    }
    bridge_grid grid = {.size = {threads[0], threads[1], threads[2]},
                        .group = {group[0], group[1], group[2]}};
    for (int i = 0; i < count; i++) {
        const metal_argument *argument = &arguments[i];
        bound[i] = (bridge_argument){.index = argument->index,
                                     .is_resource = argument->is_resource,
                                     .buffer = argument->range.handle,
                                     .offset_bytes = argument->range.offset,
                                     .bytes = argument->bytes,
                                     .nbytes = argument->range.nbytes,
                                     .is_empty = argument->range.nbytes == 0};
    }
    bool is_encoded = bridge_encode_kernel(commands, false, kernel_cast(kernel)->kernel, bound,
                                           count, &grid) == BRIDGE_OK;
    free(bound);
    if (is_encoded) {
        softmetal_host_encoded(commands); /* as above */
        tell_what_is_given(commands, arguments, count);
    }
    return is_encoded;
}

typedef struct completion {
    metal_completed *completed;
    void *context;
} completion;

static void
complete(void *context, bridge_commands *commands, bridge_status status,
         const bridge_error *error)
{
    completion after = *(completion *)context;
    (void)commands;
    free(context);
    after.completed(after.context, status == BRIDGE_OK ? NULL : error->text);
}

static void
commands_commit(void *commands, metal_completed *completed, void *context)
{
    completion *after = malloc(sizeof *after);
    if (after == NULL) {
        Py_FatalError("no memory to commit torch's work");
    }
    *after = (completion){completed, context};
    bridge_commands_commit(commands, NULL, 0, complete, after);
}

/* ---- events ---- */

static void *
event_new(void)
{
    const device_record *device = torch_device();
    return device == NULL ? NULL : bridge_event_new(device->handle);
}

static void
event_release(void *event)
{
    bridge_event_release(event);
}

static void
encode_signal(void *commands, void *event, uint64_t value)
{
    bridge_encode_signal(commands, event, value);
    bridge_raise_when_completed(commands, event, value);
}

static void
encode_wait(void *commands, void *event, uint64_t value)
{
    bridge_encode_wait(commands, event, value);
}

static uint64_t
event_value(void *event)
{
    return bridge_event_value(event);
}

static bool
event_wait(void *event, uint64_t value, bool (*goes_on)(void))
{
    double started = bridge_event_value(event) >= value ? 0 : timeline_begin();
    bool is_over;
    do {
        is_over =
            bridge_event_wait(event, value, WAITING_SLICE_NS / 1000000) || bridge_is_forked();
    } while (!is_over && goes_on());
    timeline_waited(started, "torch's mps", (timeline_record){.event = event, .value = value});
    return is_over;
}

static bool
hear_signals(void)
{
    if (syscall(SYS_gettid) != getpid() || !softmetal_turn_has_interpreter()) {
        return true;
    }
    PyGILState_STATE before = PyGILState_Ensure();
    bool is_quiet = PyErr_CheckSignals() == 0;
    PyGILState_Release(before);
    return is_quiet;
}

/* ---- settings and figures ---- */

static bool
is_watching(void)
{
    return softmetal_is_watching != 0;
}

static uint64_t
latency_us(void)
{
    return soft_settings_get(SOFT_LATENCY_US);
}

static uint64_t
device_allocated(void)
{
    return bridge_device_allocated_nbytes(torch_device()->handle);
}

static uint64_t
device_recommended(void)
{
    return torch_device()->facts.recommended_max_working_set;
}

static void
empty_pool(void)
{
    (void)pool_empty(torch_device());
}

/* ---- timelines ---- */

static void
show_operator(double started, const char *name, void *written)
{
    /* torch has given up the GIL; threads of its own have no Python to name */
    if (timeline_on() && PyGILState_GetThisThreadState() != NULL) {
        PyGILState_STATE before = PyGILState_Ensure();
        place_note();
        PyGILState_Release(before);
    }
    timeline_name(name);
    timeline_computed(started, TIMELINE_OPERATOR,
                      (timeline_record){.dst = written,
                                        .dst_mode =
                                            written == NULL ? TIMELINE_CPU : BRIDGE_SHARED,
                                        .src_mode = TIMELINE_CPU});
}

static const metal_for_torch table = {
    memory_new,     storage_free_memory, memory_handle,      buffer_contents,
    buffer_nbytes,  queue_new,           commands_new,       encode_use,
    encode_kernel,  kernel_parameter_at, commands_commit,    event_new,
    event_release,  encode_signal,       encode_wait,        event_value,
    event_wait,     hear_signals,        is_watching,        bridge_is_forked,
    latency_us,     device_allocated,    device_recommended, empty_pool,
    timeline_begin, show_operator,
};

int
softmetal_torch_add(PyObject *module)
{
    bool is_main = PyInterpreterState_Get() == PyInterpreterState_Main();
    PyObject *capsule = is_main ? PyCapsule_New((void *)&table, METAL_FOR_TORCH_CAPSULE, NULL)
                                : Py_NewRef(Py_None);
    int result =
        capsule == NULL ? -1 : PyModule_AddObjectRef(module, "_softmetal_torch", capsule);
    Py_XDECREF(capsule);
    return result;
}
