/* work_touch.c: see work_touch.h. */
#include "metal/work_touch.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Each owned (+1); filled behind the lock, atomic. */
static bridge_kernel *kernels[DEVICES_MAX];

/* The compiler must not see that nothing is written, or Metal would not count it as a write. */
static const char text[] = "#include <metal_stdlib>\n"
                           "using namespace metal;\n"
                           "kernel void\n"
                           "touch(device uchar *bytes [[buffer(0)]],\n"
                           "      constant uint &count [[buffer(1)]],\n"
                           "      uint position [[thread_position_in_grid]])\n"
                           "{\n"
                           "    if (position < count) {\n"
                           "        bytes[position] = 0;\n"
                           "    }\n"
                           "}\n";

static const char *const names[] = {"touch"};
static bridge_kernel_run *const runs[] = {NULL};
static const bridge_kernel_source source = {text, names, runs, 1, 1u};

bool
work_touch_prepare(const device_record *device)
{
    bridge_kernel **place = &kernels[device->index];
    if (bridge_is_forked()) { /* the lock may be held by a thread that is not here */
        return false;
    }
    if (__atomic_load_n(place, __ATOMIC_ACQUIRE) == NULL) {
        bridge_error unused;
        bridge_kernel *made = NULL;
        (void)pthread_mutex_lock(&lock);
        if (*place == NULL &&
            bridge_kernels_new(device->handle, &source, &made, &unused) == BRIDGE_OK) {
            __atomic_store_n(place, made, __ATOMIC_RELEASE);
        }
        (void)pthread_mutex_unlock(&lock);
    }
    return __atomic_load_n(place, __ATOMIC_ACQUIRE) != NULL;
}

bridge_status
work_touch(bridge_commands *commands, const metal_storage *storage)
{
    static const uint32_t count = 0;
    static const size_t grid[3] = {1, 1, 1};
    const bridge_argument arguments[] = {
        {.buffer = storage->handle},
        {.bytes = &count, .nbytes = sizeof count},
    };
    return bridge_encode_kernel(commands, kernels[storage->device->index], arguments, 2, grid);
}
