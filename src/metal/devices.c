/* devices.c: see devices.h. */
#include "metal/devices.h"

#include <pthread.h>
#include <stdlib.h>

#ifndef __APPLE__
#include "softmetal/softmetal.h"
#endif

static device_record table[DEVICES_MAX];
static int table_count;
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void
fill_table(void)
{
    bridge_device *handles[DEVICES_MAX];
    size_t count = bridge_device_copy_all(handles, DEVICES_MAX);
    for (size_t i = 0; i < count; i++) {
        device_record *record = &table[i];
        record->index = (int)i;
        record->handle = handles[i]; /* the table keeps the +1 */
        bridge_device_describe(handles[i], &record->facts);
    }
    __atomic_store_n(&table_count, (int)count, __ATOMIC_RELEASE);
}

int
devices_count(void)
{
    if (!bridge_is_forked()) { /* the thread that fills the table may not be here */
        (void)pthread_once(&table_once, fill_table);
    }
    return __atomic_load_n(&table_count, __ATOMIC_ACQUIRE);
}

const device_record *
devices_get(int index)
{
    return &table[index];
}

const device_record *
devices_find(bridge_device *device)
{
    int count = devices_count();
    for (int i = 0; i < count; i++) {
        if (table[i].handle == device) {
            return &table[i];
        }
    }
    /* Two objects can stand for one GPU: the registry ID is what names it. */
    /* unreached: another machine */
    bridge_device_facts facts;
    bridge_device_describe(device, &facts);
    for (int i = 0; i < count; i++) {
        if (table[i].facts.registry_id == facts.registry_id) {
            return &table[i];
        }
    }
    return NULL;
}

/* ---- kernels of our own ---- */

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
    const bridge_compile_options chosen = {BRIDGE_MATH_SAFE, 0};
    bridge_status status = bridge_library_new(device->handle, kernel->source, &chosen, &library,
                                              &message, &is_source);
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
