/* encoder.m: what all encoders share, and MTLBlitCommandEncoder: copies and fills.
 *
 * Owns:      the command buffer (+1), so that an encoder may outlive the caller's reference.
 * Calls:     program.h, settings.h, validation.h.
 * Threads:   one thread at a time, as Metal demands.
 * Invariant: the command buffer's `_encoder` is this object until endEncoding or dealloc.
 * Note:      a blit that is out of range is reported and left out; one that is only unaligned
 *            or overlapping is reported and encoded, since most GPUs carry it out.
 */
#import "softmetal/apple/objects.h"

#include <stdlib.h>

#include "softmetal/apple/object_list.h"
#include "softmetal/call_site.h"
#include "softmetal/settings.h"
#include "softmetal/validation.h"

@implementation SoftMetalEncoder

- (instancetype)initWithCommandBuffer:(SoftMetalCommandBuffer *)commandBuffer
{
    self = [super init];
    _commandBuffer = [commandBuffer retain];
    return self;
}

- (void)dealloc
{
    if (!_isEnded) {
        char site[512];
        soft_call_site_describe(soft_object_of(self)->site, site, sizeof site);
        soft_validation_report(
            SOFT_REPORT_NO_END_ENCODING,
            "a command encoder is released without endEncoding; it was made at %s", site);
        _commandBuffer->_encoder = nil;
    }
    [_commandBuffer release];
    [super dealloc];
}

- (id<MTLDevice>)device
{
    return [_commandBuffer device];
}

- (void)setLabel:(NSString *)label
{
    [super setLabel:label];
    [_info setLabel:label];
}

- (BOOL)isOpenFor:(const char *)method
{
    return SOFT_DEMAND(!_isEnded, SOFT_REPORT_ENCODER_STATE, "-[%s] after endEncoding.",
                       method);
}

- (void)endEncoding
{
    if ([self isOpenFor:"MTLCommandEncoder endEncoding"]) {
        _isEnded = YES;
        _commandBuffer->_encoder = nil;
    }
}

- (soft_storage *)storageOf:(id)buffer for:(const char *)method
{
    SoftMetalBuffer *object = buffer;
    if (!SOFT_DEMAND([buffer isKindOfClass:[SoftMetalBuffer class]], SOFT_REPORT_ARGUMENT,
                     "-[%s]: the buffer is nil.", method) ||
        !SOFT_DEMAND(soft_device_is_same(object->_device, _commandBuffer->_queue->_device),
                     SOFT_REPORT_ARGUMENT, "-[%s]: the buffer belongs to another device.",
                     method)) {
        return NULL;
    }
    [_commandBuffer keepObject:buffer];
    return object->_storage;
}

- (soft_pixels *)pixelsOf:(id)texture for:(const char *)method
{
    SoftMetalTexture *object = texture;
    if (!SOFT_DEMAND([texture isKindOfClass:[SoftMetalTexture class]], SOFT_REPORT_ARGUMENT,
                     "-[%s]: the texture is nil.", method) ||
        [self storageOf:object->_memory for:method] == NULL) {
        return NULL;
    }
    [_commandBuffer keepObject:texture];
    return object->_pixels;
}

/* Commands encoded in a loop share one call site. */
- (void)addCommand:(soft_command)command
{
    void *caller = soft_call_site_caller();
    if (soft_races_are_watched() && (_lastSite == NULL || caller != _lastCaller)) {
        _lastCaller = caller;
        _lastSite = soft_call_site_intern();
    }
    command.site = _lastSite;
    if (!soft_program_add_command(&_commandBuffer->_program, [_commandBuffer openPass],
                                  command)) {
        soft_command_clear(&command);
        [_commandBuffer lackMemory];
    }
}

- (void)noteFence:(id)fence isUpdated:(BOOL)isUpdated for:(const char *)method
{
    if (![self isOpenFor:method] ||
        !SOFT_DEMAND([fence isKindOfClass:[SoftMetalFence class]], SOFT_REPORT_ARGUMENT,
                     "-[%s]: the fence is nil.", method)) {
        return;
    }
    [_commandBuffer keepObject:fence];
    soft_pass *pass = [_commandBuffer openPass];
    if (!soft_pass_add_fence(isUpdated ? &pass->updated : &pass->awaited,
                             isUpdated ? &pass->updated_count : &pass->awaited_count,
                             ((SoftMetalFence *)fence)->_event)) {
        [_commandBuffer lackMemory];
    }
}

@end

/* ---- blits ---- */

static BOOL
is_inside(const char *method, const char *what, const soft_storage *storage, NSUInteger offset,
          NSUInteger size)
{
    return storage != NULL &&
           SOFT_DEMAND(size <= storage->nbytes && offset <= storage->nbytes - size,
                       SOFT_REPORT_BLIT_RANGE,
                       "-[%s]: the %s range (%lu + %lu) passes the end of the buffer (%zu).",
                       method, what, offset, size, storage->nbytes) &&
           SOFT_DEMAND(size != 0, SOFT_REPORT_BLIT_RANGE, "-[%s]: the %s range is empty.",
                       method, what);
}

#define BLIT_ALIGNMENT 4

static void
check_alignment(const char *method, const char *what, NSUInteger value)
{
    (void)SOFT_DEMAND(value % BLIT_ALIGNMENT == 0, SOFT_REPORT_BLIT_ALIGNMENT,
                      "-[%s]: the %s (%lu) must be a multiple of %d on macOS.", method, what,
                      value, BLIT_ALIGNMENT);
}

size_t
softmetal_blit_limit(void)
{
    return soft_settings_get(SOFT_BLIT_LIMIT);
}

/* What is past the limit is not moved, and nobody is told. */
static size_t
cut_to_limit(NSUInteger size)
{
    size_t most = softmetal_blit_limit();
    return size < most ? size : most;
}

@implementation SoftMetalBlitEncoder

- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
          sourceOffset:(NSUInteger)sourceOffset
              toBuffer:(id<MTLBuffer>)destinationBuffer
     destinationOffset:(NSUInteger)destinationOffset
                  size:(NSUInteger)size
{
    SOFT_CALLED();
    const char *method = "MTLBlitCommandEncoder "
                         "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:";
    if (![self isOpenFor:method]) {
        return;
    }
    soft_storage *source = [self storageOf:sourceBuffer for:method];
    soft_storage *destination = [self storageOf:destinationBuffer for:method];
    if (!is_inside(method, "source", source, sourceOffset, size) ||
        !is_inside(method, "destination", destination, destinationOffset, size)) {
        return;
    }
    check_alignment(method, "source offset", sourceOffset);
    check_alignment(method, "destination offset", destinationOffset);
    check_alignment(method, "size", size);
    (void)SOFT_DEMAND(source != destination || sourceOffset >= destinationOffset + size ||
                          destinationOffset >= sourceOffset + size,
                      SOFT_REPORT_BLIT_RANGE,
                      "-[%s]: the ranges (%lu and %lu, %lu bytes) overlap in one buffer.",
                      method, sourceOffset, destinationOffset, size);
    [self addCommand:(soft_command){.kind = SOFT_COPY,
                                    .source = source,
                                    .destination = destination,
                                    .source_offset = sourceOffset,
                                    .destination_offset = destinationOffset,
                                    .nbytes = cut_to_limit(size)}];
}

/* Is the box there in the texture, and are the buffer's rows and images whole?  `bytes` is the offset and the
 * two steps of the buffer's side. */
static BOOL
is_box_good(const char *method, const soft_pixels *pixels, MTLOrigin origin, MTLSize size,
            NSUInteger slice, NSUInteger level, const NSUInteger bytes[3])
{
    if (pixels == NULL ||
        !SOFT_DEMAND(
            level < pixels->as.levels && slice < pixels->as.slices, SOFT_REPORT_BLIT_RANGE,
            "-[%s]: the texture has %u slices and %u levels, and no slice %lu of level "
            "%lu.",
            method, pixels->as.slices, pixels->as.levels, slice, level)) {
        return NO;
    }
    const NSUInteger ends[] = {origin.x + size.width, origin.y + size.height,
                               origin.z + size.depth};
    const soft_u32 extents[] = {pixels->as.width, pixels->as.height, pixels->as.depth};
    for (int axis = 0; axis < 3; axis++) {
        NSUInteger extent = texture_side(extents[axis], (soft_u32)level);
        if (!SOFT_DEMAND(ends[axis] <= extent, SOFT_REPORT_BLIT_RANGE,
                         "-[%s]: the box ends at %lu, and axis %d of the texture at %lu.",
                         method, ends[axis], axis, extent)) {
            return NO;
        }
    }
    size_t pixel = pixel_format_nbytes(pixels->format);
    NSUInteger row = size.width * pixel, image = bytes[1] * size.height;
    return SOFT_DEMAND(size.width != 0 && size.height != 0 && size.depth != 0,
                       SOFT_REPORT_BLIT_RANGE, "-[%s]: the box is empty.", method) &&
           SOFT_DEMAND(bytes[0] % pixel == 0 && bytes[1] % pixel == 0,
                       SOFT_REPORT_BLIT_ALIGNMENT,
                       "-[%s]: the offset (%lu) and the bytes of a row (%lu) must be multiples "
                       "of a pixel's (%zu).",
                       method, bytes[0], bytes[1], pixel) &&
           SOFT_DEMAND(bytes[1] >= row, SOFT_REPORT_BLIT_RANGE,
                       "-[%s]: a row of the buffer (%lu bytes) is shorter than one of the box "
                       "(%lu).",
                       method, bytes[1], row) &&
           SOFT_DEMAND(
               size.depth == 1 || bytes[2] >= image, SOFT_REPORT_BLIT_RANGE,
               "-[%s]: an image of the buffer (%lu bytes) is shorter than its rows (%lu).",
               method, bytes[2], image);
}

/* The bytes of the buffer's side that a copy of the box touches. */
static NSUInteger
box_nbytes(const soft_pixels *pixels, MTLSize size, const NSUInteger bytes[3])
{
    return (size.depth - 1) * bytes[2] + (size.height - 1) * bytes[1] +
           size.width * pixel_format_nbytes(pixels->format);
}

/* A box of pixels from the buffer to the texture, or back.  `bytes` are the buffer's: its offset, from row to row, from
 * image to image. */
- (void)copyBox:(MTLSize)size
              at:(MTLOrigin)origin
         ofSlice:(NSUInteger)slice
           level:(NSUInteger)level
              of:(id<MTLTexture>)texture
      withBuffer:(id<MTLBuffer>)buffer
           bytes:(const NSUInteger *)bytes
          isFill:(BOOL)isFill
             for:(const char *)method
{
    soft_storage *storage = [self storageOf:buffer for:method];
    soft_pixels *pixels = [self pixelsOf:texture for:method];
    if (!is_box_good(method, pixels, origin, size, slice, level, bytes) ||
        !is_inside(method, isFill ? "source" : "destination", storage, bytes[0],
                   box_nbytes(pixels, size, bytes))) {
        return;
    }
    soft_box *box = malloc(sizeof *box);
    if (box == NULL) {
        [_commandBuffer lackMemory];
        return;
    }
    size_t row = (size_t)pixels->as.level[level].row_nbytes;
    size_t image = (size_t)pixels->as.level[level].image_nbytes;
    size_t offset = soft_pixels_offset(pixels, level, origin.x, origin.y, origin.z + slice);
    *box = (soft_box){.row_nbytes = size.width * pixel_format_nbytes(pixels->format),
                      .rows = size.height,
                      .images = size.depth,
                      .source_row = isFill ? bytes[1] : row,
                      .source_image = isFill ? bytes[2] : image,
                      .destination_row = isFill ? row : bytes[1],
                      .destination_image = isFill ? image : bytes[2]};
    [self addCommand:(soft_command){.kind = SOFT_COPY_BOX,
                                    .box = box,
                                    .source = isFill ? storage : pixels->storage,
                                    .destination = isFill ? pixels->storage : storage,
                                    .source_offset = isFill ? bytes[0] : offset,
                                    .destination_offset = isFill ? offset : bytes[0]}];
}

- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
           sourceOffset:(NSUInteger)sourceOffset
      sourceBytesPerRow:(NSUInteger)sourceBytesPerRow
    sourceBytesPerImage:(NSUInteger)sourceBytesPerImage
             sourceSize:(MTLSize)sourceSize
              toTexture:(id<MTLTexture>)destinationTexture
       destinationSlice:(NSUInteger)destinationSlice
       destinationLevel:(NSUInteger)destinationLevel
      destinationOrigin:(MTLOrigin)destinationOrigin
{
    SOFT_CALLED();
    const char *method = "MTLBlitCommandEncoder copyFromBuffer:...toTexture:...";
    if ([self isOpenFor:method]) {
        const NSUInteger bytes[] = {sourceOffset, sourceBytesPerRow, sourceBytesPerImage};
        [self copyBox:sourceSize
                    at:destinationOrigin
               ofSlice:destinationSlice
                 level:destinationLevel
                    of:destinationTexture
            withBuffer:sourceBuffer
                 bytes:bytes
                isFill:YES
                   for:method];
    }
}

- (void)copyFromTexture:(id<MTLTexture>)sourceTexture
                 sourceSlice:(NSUInteger)sourceSlice
                 sourceLevel:(NSUInteger)sourceLevel
                sourceOrigin:(MTLOrigin)sourceOrigin
                  sourceSize:(MTLSize)sourceSize
                    toBuffer:(id<MTLBuffer>)destinationBuffer
           destinationOffset:(NSUInteger)destinationOffset
      destinationBytesPerRow:(NSUInteger)destinationBytesPerRow
    destinationBytesPerImage:(NSUInteger)destinationBytesPerImage
{
    SOFT_CALLED();
    const char *method = "MTLBlitCommandEncoder copyFromTexture:...toBuffer:...";
    if ([self isOpenFor:method]) {
        const NSUInteger bytes[] = {destinationOffset, destinationBytesPerRow,
                                    destinationBytesPerImage};
        [self copyBox:sourceSize
                    at:sourceOrigin
               ofSlice:sourceSlice
                 level:sourceLevel
                    of:sourceTexture
            withBuffer:destinationBuffer
                 bytes:bytes
                isFill:NO
                   for:method];
    }
}

- (void)generateMipmapsForTexture:(id<MTLTexture>)texture
{
    SOFT_CALLED();
    const char *method = "MTLBlitCommandEncoder generateMipmapsForTexture:";
    soft_pixels *pixels =
        [self isOpenFor:method] ? [self pixelsOf:texture for:method] : NULL;
    if (pixels == NULL ||
        !SOFT_DEMAND(pixels->as.levels > 1, SOFT_REPORT_TEXTURE,
                     "-[%s]: the mipmapLevelCount (%u) must be more than 1.", method,
                     pixels->as.levels) ||
        !SOFT_DEMAND(pixel_format_is_generated(pixels->format), SOFT_REPORT_TEXTURE,
                     "-[%s]: %s is not color-renderable and filterable.", method,
                     pixels->format->name)) {
        return;
    }
    [self
        addCommand:(soft_command){.kind = SOFT_MIP,
                                  .pixels = soft_pixels_retain(pixels),
                                  .destination = pixels->storage,
                                  .destination_offset = soft_pixels_offset(pixels, 0, 0, 0, 0),
                                  .nbytes = (size_t)pixels->as.nbytes}];
}

- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)range value:(uint8_t)value
{
    SOFT_CALLED();
    const char *method = "MTLBlitCommandEncoder fillBuffer:range:value:";
    if (![self isOpenFor:method]) {
        return;
    }
    soft_storage *storage = [self storageOf:buffer for:method];
    if (!is_inside(method, "fill", storage, range.location, range.length)) {
        return;
    }
    check_alignment(method, "location", range.location);
    check_alignment(method, "length", range.length);
    [self addCommand:(soft_command){.kind = SOFT_FILL,
                                    .value = value,
                                    .destination = storage,
                                    .destination_offset = range.location,
                                    .nbytes = cut_to_limit(range.length)}];
}

- (void)updateFence:(id<MTLFence>)fence
{
    [self noteFence:fence isUpdated:YES for:"MTLBlitCommandEncoder updateFence:"];
}

- (void)waitForFence:(id<MTLFence>)fence
{
    [self noteFence:fence isUpdated:NO for:"MTLBlitCommandEncoder waitForFence:"];
}

@end
