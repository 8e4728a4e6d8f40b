/* compute.m: the compute encoder.
 *
 * Owns:    the dispatch that is being prepared.
 * Calls:   kernel.h, program.h, validation.h.
 * Threads: an encoder as Metal demands.
 */
#import "softmetal/apple/objects.h"

#include <stdlib.h>
#include <string.h>

#include "softmetal/call_site.h"
#include "softmetal/gpu/races.h"
#include "softmetal/validation.h"

@implementation SoftMetalComputeEncoder

- (instancetype)initWithCommandBuffer:(SoftMetalCommandBuffer *)commandBuffer
{
    self = [super initWithCommandBuffer:commandBuffer];
    _dispatch = soft_dispatch_new();
    if (_dispatch == NULL) {
        _isEnded = YES; /* it was never open */
        [self release];
        return nil;
    }
    return self;
}

- (void)dealloc
{
    if (_dispatch != NULL) {
        _dispatch->kernel.image = NULL; /* the pipeline's */
        _dispatch->kernel.counting = NULL;
    }
    soft_dispatch_free(_dispatch);
    [super dealloc];
}

- (BOOL)takesIndex:(NSUInteger)index for:(const char *)method
{
    return [self isOpenFor:method] &&
           SOFT_DEMAND(index < SOFT_MOST_ARGUMENTS, SOFT_REPORT_ARGUMENT,
                       "-[%s]: the index (%lu) is over 30.", method, index);
}

- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index
{
    const char *method = "MTLComputeCommandEncoder setBytes:length:atIndex:";
    if (![self takesIndex:index for:method]) {
        return;
    }
    (void)SOFT_DEMAND(length <= 4096, SOFT_REPORT_SET_BYTES,
                      "-[%s]: the length (%lu) is over 4096.", method, length);
    if (SOFT_DEMAND(bytes != NULL && length > 0, SOFT_REPORT_ARGUMENT,
                    "-[%s]: no bytes (%p, %lu).", method, bytes, length) &&
        !soft_argument_set_bytes(soft_dispatch_clear_argument(_dispatch, index), bytes,
                                 length)) {
        [_commandBuffer lackMemory];
    }
}

- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index
{
    const char *method = "MTLComputeCommandEncoder setBuffer:offset:atIndex:";
    if (![self takesIndex:index for:method]) {
        return;
    }
    soft_argument *argument = soft_dispatch_clear_argument(_dispatch, index);
    if (buffer == nil) {
        return;
    }
    soft_storage *storage = [self storageOf:buffer for:method];
    if (storage != NULL &&
        SOFT_DEMAND(offset < storage->nbytes, SOFT_REPORT_ARGUMENT,
                    "-[%s]: the offset (%lu) passes the end of the buffer (%zu).", method,
                    offset, storage->nbytes)) {
        argument->storage = storage;
        argument->offset = offset;
    }
}

- (void)setComputePipelineState:(id<MTLComputePipelineState>)state
{
    const char *method = "MTLComputeCommandEncoder setComputePipelineState:";
    if (![self isOpenFor:method]) {
        return;
    }
    SoftMetalPipeline *pipeline = (SoftMetalPipeline *)state;
    if (SOFT_DEMAND([pipeline isKindOfClass:[SoftMetalPipeline class]] &&
                        soft_device_is_same(pipeline->_device, _commandBuffer->_queue->_device),
                    SOFT_REPORT_ARGUMENT, "-[%s]: the pipeline is nil, or another device's.",
                    method)) {
        [_commandBuffer keepObject:pipeline];
        _dispatch->kernel = pipeline->_kernel;
        _hasPipeline = YES;
    }
}

- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index
{
    const char *method = "MTLComputeCommandEncoder setThreadgroupMemoryLength:atIndex:";
    if (![self takesIndex:index for:method]) {
        return;
    }
    (void)SOFT_DEMAND(length % 16 == 0, SOFT_REPORT_ARGUMENT,
                      "-[%s]: the length (%lu) is no multiple of 16.", method, length);
    if (SOFT_DEMAND(length <= SOFT_MOST_THREADGROUP_NBYTES, SOFT_REPORT_ARGUMENT,
                    "-[%s]: the length (%lu) is over maxThreadgroupMemoryLength (%d).", method,
                    length, SOFT_MOST_THREADGROUP_NBYTES)) {
        _dispatch->threadgroup_nbytes[index] = (soft_u32)length;
    }
}

- (void)setTexture:(id<MTLTexture>)texture atIndex:(NSUInteger)index
{
    const char *method = "MTLComputeCommandEncoder setTexture:atIndex:";
    if (![self isOpenFor:method] ||
        !SOFT_DEMAND(index < SOFT_MOST_TEXTURES, SOFT_REPORT_ARGUMENT,
                     "-[%s]: the index (%lu) is over %d.", method, index,
                     SOFT_MOST_TEXTURES - 1)) {
        return;
    }
    soft_pixels *pixels = texture == nil ? NULL : [self pixelsOf:texture for:method];
    if (!soft_textures_set(&_dispatch->textures, (unsigned)index, pixels)) {
        [_commandBuffer lackMemory];
    }
}

- (void)setSamplerState:(id<MTLSamplerState>)sampler atIndex:(NSUInteger)index
{
    const char *method = "MTLComputeCommandEncoder setSamplerState:atIndex:";
    SoftMetalSampler *object = (SoftMetalSampler *)sampler;
    if (![self isOpenFor:method] ||
        !SOFT_DEMAND(index < SOFT_MOST_SAMPLERS, SOFT_REPORT_ARGUMENT,
                     "-[%s]: the index (%lu) is over %d.", method, index,
                     SOFT_MOST_SAMPLERS - 1) ||
        !SOFT_DEMAND(object == nil || ([object isKindOfClass:[SoftMetalSampler class]] &&
                                       soft_device_is_same(object->_device,
                                                           _commandBuffer->_queue->_device)),
                     SOFT_REPORT_ARGUMENT, "-[%s]: the sampler is another device's.", method)) {
        return;
    }
    if (object != nil) {
        [_commandBuffer keepObject:object];
    }
    if (!soft_textures_set_sampler(&_dispatch->textures, (unsigned)index,
                                   object == nil ? NULL : &object->_packed)) {
        [_commandBuffer lackMemory];
    }
}

- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage
{
    const char *method = "MTLComputeCommandEncoder useResource:usage:";
    const MTLResourceUsage known = MTLResourceUsageRead | MTLResourceUsageWrite;
    if (![self isOpenFor:method] ||
        !SOFT_DEMAND(usage != 0 && (usage & ~known) == 0, SOFT_REPORT_ARGUMENT,
                     "-[%s]: the usage (%lu) is not of MTLResourceUsage.", method, usage)) {
        return;
    }
    BOOL isWritten = (usage & MTLResourceUsageWrite) != 0;
    if ([(NSObject *)resource isKindOfClass:[SoftMetalTexture class]]) {
        const soft_pixels *pixels = [self pixelsOf:resource for:method];
        if (pixels != NULL && !soft_dispatch_use_texture(_dispatch, pixels, isWritten)) {
            [_commandBuffer lackMemory];
        }
        return;
    }
    soft_storage *storage = [self storageOf:resource for:method];
    if (storage != NULL && !soft_dispatch_use(_dispatch, storage, isWritten)) {
        [_commandBuffer lackMemory];
    }
}

/* ---- dispatches ---- */

static BOOL
are_sizes_good(const char *method, MTLSize grid, MTLSize group)
{
    return SOFT_DEMAND(grid.width != 0 && grid.height != 0 && grid.depth != 0 &&
                           group.width != 0 && group.height != 0 && group.depth != 0,
                       SOFT_REPORT_DISPATCH, "-[%s]: a size is zero.", method) &&
           SOFT_DEMAND(grid.width <= UINT32_MAX && grid.height <= UINT32_MAX &&
                           grid.depth <= UINT32_MAX,
                       SOFT_REPORT_DISPATCH,
                       "-[%s]: %lu x %lu x %lu threads are more than 32 bits count.", method,
                       grid.width, grid.height, grid.depth) &&
           SOFT_DEMAND(group.width * group.height * group.depth <= SOFT_MOST_THREADS,
                       SOFT_REPORT_DISPATCH,
                       "-[%s]: %lu x %lu x %lu threads are more than the pipeline's "
                       "maxTotalThreadsPerThreadgroup (%d).",
                       method, group.width, group.height, group.depth, SOFT_MOST_THREADS);
}

static BOOL
are_samplers_good(const char *method, const soft_dispatch *dispatch,
                  const soft_argument_facts *facts)
{
    soft_u32 wanted = (soft_u32)((UINT64_C(1) << facts->count) - 1) << facts->index;
    return SOFT_DEMAND((dispatch->textures.which_samplers & wanted) == wanted,
                       SOFT_REPORT_DISPATCH, "-[%s]: no sampler is set at index %d for %s.",
                       method, facts->index, facts->name);
}

/* What a kernel sees in a pixel: floating-point numbers, or integers without or with a sign. */
static BOOL
is_seen_as(const pixel_format *format, const soft_argument_facts *facts)
{
    MTLDataType type = facts->data_type;
    BOOL isUnsigned = type == MTLDataTypeUInt || type == MTLDataTypeUShort ||
                      (type == MTLDataTypeULong && pixel_format_is_of_64_bits(format));
    BOOL isSigned = type == MTLDataTypeInt || type == MTLDataTypeShort;
    return format->kind == PIXEL_UINT   ? isUnsigned
           : format->kind == PIXEL_SINT ? isSigned
                                        : !isUnsigned && !isSigned;
}

static BOOL
is_texture_good(const char *method, soft_texture_use *use, unsigned index,
                const soft_argument_facts *facts)
{
    if (!SOFT_DEMAND(use != NULL, SOFT_REPORT_DISPATCH,
                     "-[%s]: no texture is set at index %u for %s.", method, index,
                     facts->name)) {
        return NO;
    }
    const soft_pixels *pixels = use->pixels;
    const pixel_format *format = pixels->format;
    MTLTextureUsage usage = (facts->is_read ? MTLTextureUsageShaderRead : 0) |
                            (facts->is_written ? MTLTextureUsageShaderWrite : 0);
    use->is_written = facts->is_written;
    return SOFT_DEMAND(pixels->as.type == facts->texture_type, SOFT_REPORT_TEXTURE,
                       "-[%s]: the texture at index %u has the type %u, and %s is of type %d.",
                       method, index, pixels->as.type, facts->name, facts->texture_type) &&
           SOFT_DEMAND(is_seen_as(format, facts) &&
                           (!facts->is_depth || format->kind == PIXEL_DEPTH),
                       SOFT_REPORT_TEXTURE,
                       "-[%s]: the texture at index %u is of %s, which %s does not see.",
                       method, index, format->name, facts->name) &&
           SOFT_DEMAND((pixels->usage & usage) == usage, SOFT_REPORT_TEXTURE,
                       "-[%s]: the texture at index %u is made for the usage %u, and %s wants "
                       "%lu.",
                       method, index, pixels->usage, facts->name, usage) &&
           SOFT_DEMAND(!facts->is_read || !facts->is_written ||
                           pixel_format_is_read_write(format) ||
                           (facts->data_type == MTLDataTypeULong &&
                            pixel_format_is_of_64_bits(format)),
                       SOFT_REPORT_TEXTURE,
                       "-[%s]: the texture at index %u is of %s, which no kernel reads and "
                       "writes at once, as %s does.",
                       method, index, format->name, facts->name);
}

/* And note which of them are written. */
static BOOL
are_textures_good(const char *method, const soft_dispatch *dispatch,
                  const soft_argument_facts *facts)
{
    for (unsigned i = 0; i < facts->count; i++) {
        unsigned index = facts->index + i;
        if (!is_texture_good(method, soft_textures_at(&dispatch->textures, index), index,
                             facts)) {
            return NO;
        }
    }
    return YES;
}

/* What the kernel's parameter asks for. */
static BOOL
is_argument_good(const char *method, const soft_dispatch *dispatch,
                 const soft_argument_facts *facts)
{
    if (facts->kind == SOFT_ARGUMENT_THREADGROUP) {
        return SOFT_DEMAND(dispatch->threadgroup_nbytes[facts->index] > 0, SOFT_REPORT_DISPATCH,
                           "-[%s]: no threadgroup memory is set at index %d for %s.", method,
                           facts->index, facts->name);
    }
    if (facts->kind == SOFT_ARGUMENT_TEXTURE) {
        return are_textures_good(method, dispatch, facts);
    }
    if (facts->kind == SOFT_ARGUMENT_SAMPLER) {
        return are_samplers_good(method, dispatch, facts);
    }
    const soft_argument *argument = &dispatch->arguments[facts->index];
    return SOFT_DEMAND(argument->storage != NULL || argument->bytes != NULL,
                       SOFT_REPORT_DISPATCH, "-[%s]: no buffer is bound at index %d for %s.",
                       method, facts->index, facts->name) &&
           SOFT_DEMAND(argument->bytes == NULL || !facts->is_written, SOFT_REPORT_SET_BYTES,
                       "-[%s]: bytes are bound at index %d to %s, which the kernel may write.",
                       method, facts->index, facts->name) &&
           SOFT_DEMAND(facts->alignment == 0 || argument->offset % facts->alignment == 0,
                       SOFT_REPORT_DISPATCH,
                       "-[%s]: the offset (%zu) of the buffer at index %d is no multiple of "
                       "the alignment of %s (%u).",
                       method, argument->offset, facts->index, facts->name, facts->alignment);
}

/* Is all there that a compiled kernel asks for? */
static BOOL
are_arguments_good(const char *method, const soft_dispatch *dispatch)
{
    if (dispatch->kernel.image == NULL) {
        return YES;
    }
    const soft_image *facts = dispatch->kernel.image->image;
    soft_u64 nbytes = facts->threadgroup_nbytes;
    for (soft_u32 i = 0; i < facts->argument_count; i++) {
        if (!is_argument_good(method, dispatch, &facts->arguments[i])) {
            return NO;
        }
        if (facts->arguments[i].kind == SOFT_ARGUMENT_THREADGROUP) {
            nbytes += dispatch->threadgroup_nbytes[facts->arguments[i].index];
        }
    }
    return SOFT_DEMAND(nbytes <= SOFT_MOST_THREADGROUP_NBYTES, SOFT_REPORT_DISPATCH,
                       "-[%s]: %llu bytes of threadgroup memory are more than "
                       "maxThreadgroupMemoryLength (%d).",
                       method, (unsigned long long)nbytes, SOFT_MOST_THREADGROUP_NBYTES);
}

- (void)dispatch:(MTLSize)grid inGroups:(MTLSize)group for:(const char *)method
{
    if (![self isOpenFor:method] || !are_sizes_good(method, grid, group) ||
        _commandBuffer->_injected != 0 || /* an argument may be missing, for want of memory */
        !SOFT_DEMAND(_hasPipeline, SOFT_REPORT_DISPATCH, "-[%s]: no pipeline is set.",
                     method) ||
        !are_arguments_good(method, _dispatch)) {
        return;
    }
    const size_t sizes[] = {grid.width,  grid.height,  grid.depth,
                            group.width, group.height, group.depth};
    memcpy(_dispatch->grid, sizes, sizeof _dispatch->grid);
    memcpy(_dispatch->group, sizes + 3, sizeof _dispatch->group);
    soft_dispatch *dispatch = soft_dispatch_copy(_dispatch);
    if (dispatch == NULL) {
        [_commandBuffer lackMemory];
        return;
    }
    [self addCommand:(soft_command){.kind = SOFT_DISPATCH, .dispatch = dispatch}];
}

- (void)dispatchThreads:(MTLSize)threadsPerGrid
    threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup
{
    SOFT_CALLED();
    const char *method = "MTLComputeCommandEncoder dispatchThreads:threadsPerThreadgroup:";
    [self dispatch:threadsPerGrid inGroups:threadsPerThreadgroup for:method];
}

- (void)dispatchThreadgroups:(MTLSize)threadgroupsPerGrid
       threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup
{
    SOFT_CALLED();
    const char *method = "MTLComputeCommandEncoder dispatchThreadgroups:threadsPerThreadgroup:";
    MTLSize grid = {threadgroupsPerGrid.width * threadsPerThreadgroup.width,
                    threadgroupsPerGrid.height * threadsPerThreadgroup.height,
                    threadgroupsPerGrid.depth * threadsPerThreadgroup.depth};
    [self dispatch:grid inGroups:threadsPerThreadgroup for:method];
}

- (void)updateFence:(id<MTLFence>)fence
{
    [self noteFence:fence isUpdated:YES for:"MTLComputeCommandEncoder updateFence:"];
}

- (void)waitForFence:(id<MTLFence>)fence
{
    [self noteFence:fence isUpdated:NO for:"MTLComputeCommandEncoder waitForFence:"];
}

/* In here to reach the dispatch: no message, for Metal has none that it could be. */
void
softmetal_note_view(const void *encoder, unsigned index, size_t before, size_t nbytes)
{
    soft_dispatch *dispatch = ((const SoftMetalComputeEncoder *)encoder)->_dispatch;
    /* mutant survives (condition always): there is room, and binding clears it */
    if (index < (unsigned)dispatch->count) {
        dispatch->arguments[index].view_before = before;
        dispatch->arguments[index].view_nbytes = nbytes;
    }
}

void
softmetal_note_resource(const void *encoder, unsigned number, size_t offset, size_t nbytes)
{
    soft_dispatch *dispatch = ((const SoftMetalComputeEncoder *)encoder)->_dispatch;
    if (dispatch->resource_count > 0) { /* else there was no memory for it */
        soft_resource *last = &dispatch->resources[dispatch->resource_count - 1];
        last->number = number;
        last->offset = offset;
        last->nbytes = nbytes;
    }
}

@end
