/* devices.c: see devices.h. */
#include "metal/devices.h"

#include <pthread.h>

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
        record->queue = bridge_queue_new(handles[i]);
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
