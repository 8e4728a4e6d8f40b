/* work_touch.c: see work_touch.h. */
#include "metal/work_touch.h"

#include <pthread.h>
#include <stdlib.h>

#ifndef __APPLE__
#include "softmetal/softmetal.h"
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Each owned (+1); filled behind the lock, atomic. */
static bridge_kernel *kernels[DEVICES_MAX];

/* The compiler must not see that nothing is written, or Metal would not count it as a write. */
static const char source[] = "#include <metal_stdlib>\n"
                             "using namespace metal;\n"
                             "kernel void\n"
                             "metal_dlpack_touch(device uchar *bytes [[buffer(0)]],\n"
                             "                   constant uint &count [[buffer(1)]],\n"
                             "                   uint position [[thread_position_in_grid]])\n"
                             "{\n"
                             "    if (position < count) {\n"
                             "        bytes[position] = 0;\n"
                             "    }\n"
                             "}\n";
static const char name[] = "metal_dlpack_touch";

/* +1, or NULL. */
static bridge_kernel *
make_kernel(const device_record *device)
{
    bridge_library *library = NULL;
    bridge_kernel *kernel = NULL;
    char *message = NULL;
    bool is_source;
#ifndef __APPLE__
    /* Nobody need compile what touches no byte, nor look for a compiler. */
    (void)softmetal_register_kernel(name, NULL, 1u);
#endif
    if (bridge_library_new(device->handle, source, BRIDGE_MATH_FAST, &library, &message,
                           &is_source) == BRIDGE_OK) {
        (void)bridge_kernel_new(library, name, NULL, 0, &kernel, NULL, &message, &is_source);
    }
    free(message);
    bridge_library_release(library);
    return kernel;
}

bool
work_touch_prepare(const device_record *device)
{
    bridge_kernel **place = &kernels[device->index];
    if (bridge_is_forked()) { /* the lock may be held by a thread that is not here */
        return false;
    }
    if (__atomic_load_n(place, __ATOMIC_ACQUIRE) == NULL) {
        (void)pthread_mutex_lock(&lock);
        if (*place == NULL) {
            __atomic_store_n(place, make_kernel(device), __ATOMIC_RELEASE);
        }
        (void)pthread_mutex_unlock(&lock);
    }
    return __atomic_load_n(place, __ATOMIC_ACQUIRE) != NULL;
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
    return bridge_encode_kernel(commands, kernels[storage->device->index], arguments, 2, &grid);
}
