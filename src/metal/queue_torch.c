/* queue_torch.c: see queue_torch.h. */
#include "metal/queue_torch.h"

#include <dlfcn.h>
#include <pthread.h>

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

bool
queue_torch_open(const char *library)
{
    /* Only a loaded library: a second torch would have a queue of its own, without work. */
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

bridge_status
queue_torch_signal(const device_record *device, bridge_event **event, uint64_t *value)
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

bridge_status
queue_torch_wait(bridge_event *event, uint64_t value)
{
    torch_job job = {.event = event, .value = value};
    (void)pthread_mutex_lock(&lock);
    torch_functions found = functions;
    (void)pthread_mutex_unlock(&lock);
    return run_job(&found, &job);
}
