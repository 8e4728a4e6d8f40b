/* blit.m: MTLBlitCommandEncoder: copies and fills.
 *
 * Owns:    nothing; commands go to the program of the command buffer.
 * Calls:   program.h, settings.h, validation.h.
 * Threads: one thread at a time, as Metal demands.
 * Note:    a command that is out of range is reported and left out; one that is only unaligned
 *          or overlapping is reported and encoded, since most GPUs carry it out.
 */
#import "softmetal/apple/objects.h"

#include <stdlib.h>

#include "softmetal/call_site.h"
#include "softmetal/settings.h"
#include "softmetal/validation.h"

@implementation SoftMetalBlitEncoder

/* The storage of a buffer of this library, which the command buffer keeps from here on. */
- (soft_storage *)storageOf:(id)buffer for:(const char *)method
{
    if (![buffer isKindOfClass:[SoftMetalBuffer class]]) {
        soft_validation_report(SOFT_REPORT_ARGUMENT,
                               "-[MTLBlitCommandEncoder %s]: the buffer is "
                               "nil.",
                               method);
        return NULL;
    }
    if (!soft_device_is_same(((SoftMetalBuffer *)buffer)->_device,
                             _commandBuffer->_queue->_device)) {
        soft_validation_report(
            SOFT_REPORT_ARGUMENT,
            "-[MTLBlitCommandEncoder %s]: the buffer belongs to another device.", method);
        return NULL;
    }
    [_commandBuffer keepObject:buffer];
    return ((SoftMetalBuffer *)buffer)->_storage;
}

static BOOL
is_inside(const char *method, const char *what, const soft_storage *storage, NSUInteger offset,
          NSUInteger size)
{
    if (size <= storage->nbytes && offset <= storage->nbytes - size) {
        return YES;
    }
    soft_validation_report(
        SOFT_REPORT_BLIT_RANGE,
        "-[MTLBlitCommandEncoder %s]: the %s range (%lu + %lu) passes the end of "
        "the buffer (%zu).",
        method, what, offset, size, storage->nbytes);
    return NO;
}

#define BLIT_ALIGNMENT 4

static void
check_alignment(const char *method, const char *what, NSUInteger value)
{
    if (value % BLIT_ALIGNMENT != 0) {
        soft_validation_report(
            SOFT_REPORT_BLIT_ALIGNMENT,
            "-[MTLBlitCommandEncoder %s]: the %s (%lu) must be a multiple of %d on macOS.",
            method, what, value, BLIT_ALIGNMENT);
    }
}

/* Commands encoded in a loop share one call site. */
- (const soft_call_site *)callSite
{
    void *caller = soft_call_site_caller();
    if (_lastSite == NULL || caller != _lastCaller) {
        _lastCaller = caller;
        _lastSite = soft_call_site_intern();
    }
    return _lastSite;
}

size_t
softmetal_blit_limit(void)
{
    return soft_settings_get(SOFT_BLIT_LIMIT);
}

/* What is past the limit is not moved, and nobody is told. */
- (void)addCommand:(soft_command)command
{
    size_t most = softmetal_blit_limit();
    if (command.nbytes > most) {
        command.nbytes = most;
    }
    if (soft_races_are_watched()) {
        command.site = [self callSite];
    }
    if (!soft_program_add_command(&_commandBuffer->_program, [_commandBuffer openPass],
                                  command)) {
        abort();
    }
}

- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
          sourceOffset:(NSUInteger)sourceOffset
              toBuffer:(id<MTLBuffer>)destinationBuffer
     destinationOffset:(NSUInteger)destinationOffset
                  size:(NSUInteger)size
{
    SOFT_CALLED();
    const char *method = "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:";
    if (![self isOpenFor:"MTLBlitCommandEncoder copyFromBuffer:..."]) {
        return;
    }
    soft_storage *source = [self storageOf:sourceBuffer for:method];
    soft_storage *destination = [self storageOf:destinationBuffer for:method];
    if (source == NULL || destination == NULL ||
        !is_inside(method, "source", source, sourceOffset, size) ||
        !is_inside(method, "destination", destination, destinationOffset, size)) {
        return;
    }
    check_alignment(method, "source offset", sourceOffset);
    check_alignment(method, "destination offset", destinationOffset);
    check_alignment(method, "size", size);
    if (size == 0) {
        soft_validation_report(SOFT_REPORT_BLIT_RANGE,
                               "-[MTLBlitCommandEncoder %s]: the size is zero.", method);
        return;
    }
    if (source == destination && sourceOffset < destinationOffset + size &&
        destinationOffset < sourceOffset + size) {
        soft_validation_report(
            SOFT_REPORT_BLIT_RANGE,
            "-[MTLBlitCommandEncoder %s]: the ranges (%lu and %lu, %lu bytes) "
            "overlap in one buffer.",
            method, sourceOffset, destinationOffset, size);
    }
    [self addCommand:(soft_command){.kind = SOFT_COPY,
                                    .source = source,
                                    .destination = destination,
                                    .source_offset = sourceOffset,
                                    .destination_offset = destinationOffset,
                                    .nbytes = size}];
}

- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)range value:(uint8_t)value
{
    SOFT_CALLED();
    const char *method = "fillBuffer:range:value:";
    if (![self isOpenFor:"MTLBlitCommandEncoder fillBuffer:range:value:"]) {
        return;
    }
    soft_storage *storage = [self storageOf:buffer for:method];
    if (storage == NULL || !is_inside(method, "fill", storage, range.location, range.length)) {
        return;
    }
    check_alignment(method, "location", range.location);
    check_alignment(method, "length", range.length);
    if (range.length == 0) {
        soft_validation_report(SOFT_REPORT_BLIT_RANGE,
                               "-[MTLBlitCommandEncoder %s]: the length is zero.", method);
        return;
    }
    [self addCommand:(soft_command){.kind = SOFT_FILL,
                                    .value = value,
                                    .destination = storage,
                                    .destination_offset = range.location,
                                    .nbytes = range.length}];
}

- (void)updateFence:(id<MTLFence>)fence
{
    [self addUpdatedFence:fence];
}

- (void)waitForFence:(id<MTLFence>)fence
{
    [self addAwaitedFence:fence];
}

@end
