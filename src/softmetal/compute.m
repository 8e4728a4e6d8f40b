/* compute.m: libraries, functions, pipelines and the compute encoder; a kernel is a C
 * function.
 *
 * Owns:    a library its text, a function and a pipeline their kernel, an encoder its
 *          arguments.
 * Calls:   kernel.h for kernels, program.h, failure.h, validation.h.
 * Threads: libraries, functions and pipelines from any; an encoder as Metal demands.
 * Note:    no compiler is here: a function is found if the text has its name and somebody has
 *          registered a kernel of that name.
 */
#import "softmetal/objects.h"

#include <stdlib.h>
#include <string.h>

#include "softmetal/call_site.h"
#include "softmetal/failure.h"
#include "softmetal/races.h"
#include "softmetal/validation.h"

#define MOST_THREADS 1024  /* of a threadgroup */
#define EXECUTION_WIDTH 32 /* threads that run at once */

@implementation SoftMetalLibrary

- (instancetype)initWithDevice:(SoftMetalDevice *)device source:(NSString *)source
{
    self = [super init];
    if (self != nil) {
        _device = [device retain];
        _source = strdup([source UTF8String]);
    }
    return self;
}

- (void)dealloc
{
    free(_source);
    [_device release];
    [super dealloc];
}

- (id<MTLDevice>)device
{
    return _device;
}

- (id<MTLFunction>)newFunctionWithName:(NSString *)functionName
{
    SOFT_CALLED();
    const char *name = functionName == nil ? NULL : [functionName UTF8String];
    soft_kernel kernel;
    if (name == NULL || _source == NULL || strstr(_source, name) == NULL ||
        !soft_kernel_find(name, &kernel)) {
        return nil;
    }
    return [[SoftMetalFunction alloc] initWithDevice:_device kernel:kernel];
}

@end

@implementation SoftMetalFunction

- (instancetype)initWithDevice:(SoftMetalDevice *)device kernel:(soft_kernel)kernel
{
    self = [super init];
    if (self != nil) {
        _device = [device retain];
        _kernel = kernel;
    }
    return self;
}

- (void)dealloc
{
    [_device release];
    [super dealloc];
}

- (id<MTLDevice>)device
{
    return _device;
}

- (NSString *)name
{
    return [NSString stringWithUTF8String:_kernel.name];
}

@end

@implementation SoftMetalPipeline

- (instancetype)initWithFunction:(SoftMetalFunction *)function
{
    self = [super init];
    if (self != nil) {
        _device = [function->_device retain];
        _kernel = function->_kernel;
    }
    return self;
}

- (void)dealloc
{
    [_device release];
    [super dealloc];
}

- (id<MTLDevice>)device
{
    return _device;
}

- (NSUInteger)maxTotalThreadsPerThreadgroup
{
    return MOST_THREADS;
}

- (NSUInteger)threadExecutionWidth
{
    return EXECUTION_WIDTH;
}

@end

@implementation SoftMetalComputeEncoder

- (void)dealloc
{
    soft_dispatch_clear(&_dispatch);
    [super dealloc];
}

/* Where to put an argument, after the old one is freed; NULL after a report. */
- (soft_argument *)argumentAt:(NSUInteger)index for:(const char *)method
{
    if (![self isOpenFor:method]) {
        return NULL;
    }
    if (index >= SOFT_MOST_ARGUMENTS) {
        soft_validation_report(SOFT_REPORT_ARGUMENT, "-[%s]: the index (%lu) is over 30.",
                               method, index);
        return NULL;
    }
    return &_dispatch.arguments[index];
}

- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index
{
    const char *method = "MTLComputeCommandEncoder setBytes:length:atIndex:";
    soft_argument *argument = [self argumentAt:index for:method];
    if (argument == NULL) {
        return;
    }
    if (length > 4096) {
        soft_validation_report(SOFT_REPORT_SET_BYTES, "-[%s]: the length (%lu) is over 4096.",
                               method, length);
    }
    if (bytes == NULL || length == 0) {
        soft_validation_report(SOFT_REPORT_ARGUMENT, "-[%s]: no bytes (%p, %lu).", method,
                               bytes, length);
    }
    else if (!soft_argument_set_bytes(argument, bytes, length)) {
        abort();
    }
}

- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index
{
    const char *method = "MTLComputeCommandEncoder setBuffer:offset:atIndex:";
    soft_argument *argument = [self argumentAt:index for:method];
    if (argument == NULL) {
        return;
    }
    free(argument->bytes);
    *argument = (soft_argument){0};
    if (buffer == nil) {
        return;
    }
    SoftMetalBuffer *object = (SoftMetalBuffer *)buffer;
    if (![object isKindOfClass:[SoftMetalBuffer class]] ||
        !soft_device_is_same(object->_device, _commandBuffer->_queue->_device)) {
        soft_validation_report(SOFT_REPORT_ARGUMENT,
                               "-[%s]: the buffer belongs to another device.", method);
    }
    else if (offset >= object->_storage->nbytes) {
        soft_validation_report(SOFT_REPORT_ARGUMENT,
                               "-[%s]: the offset (%lu) passes the end of the buffer (%zu).",
                               method, offset, object->_storage->nbytes);
    }
    else {
        [_commandBuffer keepObject:object];
        argument->storage = object->_storage;
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
    if (![pipeline isKindOfClass:[SoftMetalPipeline class]] ||
        !soft_device_is_same(pipeline->_device, _commandBuffer->_queue->_device)) {
        soft_validation_report(SOFT_REPORT_ARGUMENT,
                               "-[%s]: the pipeline is nil, or another device's.", method);
        return;
    }
    [_commandBuffer keepObject:pipeline];
    _dispatch.kernel = pipeline->_kernel;
}

static BOOL
are_sizes_good(const char *method, MTLSize grid, MTLSize group)
{
    if (grid.width == 0 || grid.height == 0 || grid.depth == 0 || group.width == 0 ||
        group.height == 0 || group.depth == 0) {
        soft_validation_report(SOFT_REPORT_DISPATCH, "-[%s]: a size is zero.", method);
        return NO;
    }
    if (group.width * group.height * group.depth > MOST_THREADS) {
        soft_validation_report(SOFT_REPORT_DISPATCH,
                               "-[%s]: %lu x %lu x %lu threads are more than the pipeline's "
                               "maxTotalThreadsPerThreadgroup (%d).",
                               method, group.width, group.height, group.depth, MOST_THREADS);
        return NO;
    }
    return YES;
}

- (void)dispatchThreads:(MTLSize)threadsPerGrid
    threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup
{
    SOFT_CALLED();
    const char *method = "MTLComputeCommandEncoder dispatchThreads:threadsPerThreadgroup:";
    if (![self isOpenFor:method] ||
        !are_sizes_good(method, threadsPerGrid, threadsPerThreadgroup)) {
        return;
    }
    if (_dispatch.kernel.name == NULL) {
        soft_validation_report(SOFT_REPORT_DISPATCH, "-[%s]: no pipeline is set.", method);
        return;
    }
    _dispatch.grid[0] = threadsPerGrid.width;
    _dispatch.grid[1] = threadsPerGrid.height;
    _dispatch.grid[2] = threadsPerGrid.depth;
    soft_dispatch *dispatch = soft_dispatch_copy(&_dispatch);
    if (dispatch == NULL ||
        !soft_program_add_command(
            &_commandBuffer->_program, [_commandBuffer openPass], (soft_command) {
                .kind = SOFT_DISPATCH, .dispatch = dispatch,
                .site = soft_races_are_watched() ? soft_call_site_intern() : NULL
            })) {
        abort();
    }
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
