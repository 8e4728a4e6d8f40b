/* device_kernel.c: see device_kernel.h. */
#include "metal/device_kernel.h"

#include <pthread.h>
#include <stdlib.h>

#ifndef __APPLE__
#include "softmetal/softmetal.h"
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* `*out` is +1 on BRIDGE_OK. */
static bridge_status
compile(const device_kernel *kernel, const device_record *device, bridge_kernel **out)
{
    bridge_library *library = NULL;
    char *message = NULL;
    bool is_source;
#ifndef __APPLE__
    (void)softmetal_register_kernel(kernel->name, kernel->run, 1u);
#endif
    bridge_status status = bridge_library_new(device->handle, kernel->source, BRIDGE_MATH_FAST,
                                              &library, &message, &is_source);
    if (status == BRIDGE_OK) {
        status =
            bridge_kernel_new(library, kernel->name, NULL, 0, out, NULL, &message, &is_source);
    }
    free(message);
    bridge_library_release(library);
    return status;
}

bridge_status
device_kernel_load(device_kernel *kernel, const device_record *device, bridge_kernel **out)
{
    bridge_kernel **place = &kernel->made[device->index];
    bridge_status status = BRIDGE_OK;
    *out = NULL;
    if (bridge_is_forked()) { /* the lock may be held by a thread that is not here */
        return BRIDGE_FORKED;
    }
    *out = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    if (*out == NULL) {
        (void)pthread_mutex_lock(&lock);
        *out = *place;
        if (*out == NULL) {
            status = compile(kernel, device, out);
            __atomic_store_n(place, *out, __ATOMIC_RELEASE);
        }
        (void)pthread_mutex_unlock(&lock);
    }
    return status;
}
