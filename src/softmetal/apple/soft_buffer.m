/* soft_buffer.m: MTLBuffer.
 *
 * Owns:      a reference to the storage, which command buffers share, and the deallocator.
 * Calls:     soft_storage.h, block.h, validation.h.
 * Threads:   any.
 * Invariant: the storage outlives every command buffer that names it, this object need not.
 */
#import "softmetal/apple/objects.h"

#include <string.h>

#include "softmetal/apple/block.h"
#include "softmetal/apple/object_list.h"
#include "softmetal/gpu/races.h"
#include "softmetal/host.h"
#include "softmetal/settings.h"
#include "softmetal/softmetal.h"
#include "softmetal/validation.h"

@implementation SoftMetalBuffer

- (instancetype)initWithDevice:(SoftMetalDevice *)device
                       storage:(soft_storage *)storage
                       options:(MTLResourceOptions)options
{
    self = [super init];
    _device = [device retain];
    _storage = storage;
    _options = options;
    storage->purgeable = MTLPurgeableStateNonVolatile;
    return self;
}

/* A committed command buffer names it: report that now.  Else keep the place where it was
 * made: the commit of one that names it is reported then. */
- (void)reportUseAtDealloc
{
    char site[512], label[SOFT_LABEL_SIZE];
    soft_call_site_describe(soft_object_of(self)->site, site, sizeof site);
    if (__atomic_load_n(&_storage->pending_uses, __ATOMIC_ACQUIRE) == 0) {
        _storage->made_at = strdup(site);
        return;
    }
    soft_validation_report(
        SOFT_REPORT_DESTROYED_IN_USE,
        "the buffer \"%s\" (%zu bytes, made at %s) is destroyed while a command "
        "buffer that refers to it has not completed.",
        soft_storage_copy_label(_storage, label), _storage->nbytes, site);
}

- (void)dealloc
{
    if (!soft_process_is_forked()) {
        if (soft_validation_is_on() &&
            __atomic_load_n(&_storage->references, __ATOMIC_ACQUIRE) > 1) {
            [self reportUseAtDealloc];
        }
        soft_storage_orphan(_storage);
    }
    if (_deallocator != NULL) {
        soft_block_call_with_length(_deallocator, _storage->bytes, _storage->nbytes);
        soft_block_release(_deallocator);
    }
    soft_storage_release(_storage);
    [_device release];
    [super dealloc];
}

- (void)setLabel:(NSString *)label
{
    [super setLabel:label];
    soft_storage_set_label(_storage, label != nil ? [label UTF8String] : "");
}

@synthesize device = _device;

- (NSUInteger)length
{
    return _storage->nbytes;
}

/* The one that the CPU has, if it has one. */
- (MTLGPUAddress)gpuAddress
{
    return (MTLGPUAddress)(uintptr_t)_storage->bytes;
}

- (id<MTLTexture>)newTextureWithDescriptor:(MTLTextureDescriptor *)descriptor
                                    offset:(NSUInteger)offset
                               bytesPerRow:(NSUInteger)bytesPerRow
{
    SOFT_CALLED();
    return soft_texture_make_linear(self, descriptor, offset, bytesPerRow);
}

- (void *)contents
{
    return SOFT_DEMAND(_storage->mode != SOFT_PRIVATE, SOFT_REPORT_PRIVATE_ACCESS,
                       "-[MTLBuffer contents]: the buffer has private storage, which the CPU "
                       "cannot reach.")
               ? _storage->bytes
               : NULL;
}

- (MTLStorageMode)storageMode
{
    return (MTLStorageMode)_storage->mode;
}

- (MTLResourceOptions)resourceOptions
{
    return _options;
}

- (MTLHazardTrackingMode)hazardTrackingMode
{
    return _storage->is_tracked ? MTLHazardTrackingModeTracked : MTLHazardTrackingModeUntracked;
}

/* Discard at once, or never: on a Mac the system decides, here a setting does. */
- (MTLPurgeableState)setPurgeableState:(MTLPurgeableState)state
{
    int *purgeable = &_storage->purgeable;
    if (!SOFT_DEMAND(state >= MTLPurgeableStateKeepCurrent && state <= MTLPurgeableStateEmpty,
                     SOFT_REPORT_ARGUMENT,
                     "-[MTLResource setPurgeableState:]: the state (%lu) is not one of "
                     "MTLPurgeableState.",
                     state) ||
        state == MTLPurgeableStateKeepCurrent) {
        return (MTLPurgeableState)__atomic_load_n(purgeable, __ATOMIC_ACQUIRE);
    }
    if (state == MTLPurgeableStateVolatile && soft_settings_get(SOFT_PURGE) != 0) {
        state = MTLPurgeableStateEmpty;
    }
    int before = __atomic_exchange_n(purgeable, (int)state, __ATOMIC_ACQ_REL);
    if (state == MTLPurgeableStateEmpty) {
        soft_storage_discard(_storage);
    }
    return (MTLPurgeableState)before;
}

@end

/* ---- what a program says about its CPU's use of Metal's memory ---- */

/* A texture's is that of its bytes; NULL if it is neither a texture nor a buffer of the software Metal. */
static soft_storage *
storage_of(const void *buffer)
{
    id object = (id)buffer;
    if (!soft_process_is_forked() && [object isKindOfClass:[SoftMetalTexture class]]) {
        object = ((SoftMetalTexture *)object)->_memory;
    }
    if (soft_process_is_forked() || ![object isKindOfClass:[SoftMetalBuffer class]]) {
        return NULL;
    }
    return ((SoftMetalBuffer *)object)->_storage;
}

void
softmetal_host_access(const void *buffer, size_t offset_bytes, size_t nbytes, int is_written)
{
    SOFT_CALLED();
    soft_storage *storage = storage_of(buffer);
    if (storage == NULL || nbytes == 0) {
        return;
    }
    if (is_written != 0) {
        soft_storage_written(storage, offset_bytes, nbytes);
    }
    if (soft_races_are_watched()) {
        soft_races_cpu_uses(storage, offset_bytes, nbytes, is_written != 0);
    }
}

void
softmetal_host_gives(const void *buffer)
{
    soft_storage *storage = storage_of(buffer);
    if (storage != NULL) {
        soft_storage_written(storage, 0, storage->nbytes);
    }
}

void
softmetal_host_unwritten(const void *buffer, size_t nbytes, int is_output)
{
    soft_storage *storage = storage_of(buffer);
    if (storage != NULL) {
        __atomic_store_n(&softmetal_knows_unwritten, 1, __ATOMIC_RELAXED);
        soft_storage_renew(storage, nbytes,
                           is_output != 0 ? SOFT_WRITTEN_BY_NEXT : SOFT_WRITTEN_BY_NEXT_MOSTLY);
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
softmetal_host_frees(const void *buffer)
{
    soft_storage *storage = soft_races_are_watched() ? storage_of(buffer) : NULL;
    if (storage != NULL) {
        soft_races_forget_uses(storage);
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

void
softmetal_host_renews(const void *buffer)
{
    soft_storage *storage = storage_of(buffer);
    if (storage == NULL) {
        return;
    }
    soft_storage_renew(storage, 0, SOFT_WRITTEN_BY_ANY);
    if (soft_settings_get(SOFT_POISON) != 0) {
        soft_storage_discard(storage);
    }
}
