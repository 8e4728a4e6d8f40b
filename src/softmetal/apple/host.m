/* host.m: takes what a program says about its CPU's use of Metal's memory.
 *
 * Owns:    nothing.
 * Calls:   races.h.
 * Threads: any.
 */
#import "softmetal/apple/objects.h"

#include "softmetal/gpu/races.h"
#include "softmetal/process_flags.h"
#include "softmetal/softmetal.h"

/* NULL if it is no buffer of the software Metal. */
static soft_storage *
storage_of(const void *buffer)
{
    id object = (id)buffer;
    if (soft_process_is_forked() || ![object isKindOfClass:[SoftMetalBuffer class]]) {
        return NULL;
    }
    return ((SoftMetalBuffer *)object)->_storage;
}

void
softmetal_host_access(const void *buffer, size_t offset_bytes, size_t nbytes, int is_written)
{
    SOFT_CALLED();
    soft_storage *storage = soft_races_are_watched() ? storage_of(buffer) : NULL;
    if (storage != NULL && nbytes > 0) {
        soft_races_cpu_uses(storage, offset_bytes, nbytes, is_written != 0);
    }
}

void
softmetal_host_reached(const void *event, uint64_t value)
{
    id object = (id)event;
    if (soft_races_are_watched() && [object isKindOfClass:[SoftMetalEvent class]]) {
        soft_races_cpu_waited_for_event(((SoftMetalEvent *)object)->_event, value);
    }
}

void
softmetal_host_release(const void *buffer)
{
    soft_storage *storage = soft_races_are_watched() ? storage_of(buffer) : NULL;
    if (storage != NULL || buffer == NULL) {
        soft_races_cpu_releases(storage);
    }
}

void
softmetal_host_acquire(const void *buffer)
{
    soft_storage *storage = soft_races_are_watched() ? storage_of(buffer) : NULL;
    if (storage != NULL || buffer == NULL) {
        soft_races_cpu_acquires(storage);
    }
}
