/* soft_device.m: GPUs and what they make.
 *
 * Owns:      one account of bytes per GPU, and a table of the device objects that live.
 * Calls:     soft_storage.h, settings.h, validation.h, failure.h, process.h.
 * Threads:   any.
 * Invariant: at most one living object per GPU, so that `==` compares devices; unless
 *            SOFTMETAL_DEVICE_OBJECTS asks for many, and only registryID does.
 */
#import "softmetal/apple/objects.h"

#import <objc/runtime.h>

#include <stdio.h>

#include "softmetal/apple/block.h"
#include "softmetal/apple/object_list.h"
#include "softmetal/apple/process.h"
#include "softmetal/call_site.h"
#include "softmetal/failure.h"
#include "softmetal/host.h"
#include "softmetal/settings.h"
#include "softmetal/validation.h"

#define MOST_DEVICES 8
#define FIRST_REGISTRY_ID UINT64_C(0x50f7000000000001)

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static SoftMetalDevice *table[MOST_DEVICES]; /* borrowed: an object leaves it in dealloc */
static size_t accounts[MOST_DEVICES];

static unsigned
count_devices(void)
{
    return (unsigned)(soft_settings_get(SOFT_DEVICES) & 0xff);
}

static BOOL
is_discrete(unsigned index)
{
    return (soft_settings_get(SOFT_DEVICES) >> (8 + index) & 1) != 0 ||
           (index == 0 && soft_settings_get(SOFT_DISCRETE) != 0);
}

static BOOL
is_paravirtual(unsigned index)
{
    return (soft_settings_get(SOFT_DEVICES) >> (16 + index) & 1) != 0;
}

static BOOL
may_obtain(void)
{
    soft_process_watch();
    soft_settings_read();
    return SOFT_DEMAND(!soft_process_is_forked(), SOFT_REPORT_FORK,
                       "a Metal device is asked for in a child of fork().") &&
           !soft_failure_strikes(SOFT_FAIL_DEVICE, NULL) && !soft_failure_devices_are_removed();
}

/* +1; nil: no memory. */
static SoftMetalDevice *
make_device(unsigned index)
{
    SoftMetalDevice *device = [[SoftMetalDevice alloc] init];
    if (device != nil) {
        device->_index = index;
        device->_account = &accounts[index];
    }
    return device;
}

/* The same. */
static SoftMetalDevice *
obtain_device(unsigned index)
{
    if (soft_settings_get(SOFT_DEVICE_OBJECTS) != 0) {
        return make_device(index);
    }
    pthread_mutex_lock(&table_lock);
    SoftMetalDevice *device = table[index];
    if (device == nil || !soft_object_count_if_above(device, 0, 1)) {
        device = table[index] = make_device(index);
    }
    pthread_mutex_unlock(&table_lock);
    return device;
}

id<MTLDevice>
MTLCreateSystemDefaultDevice(void)
{
    SOFT_CALLED();
    return count_devices() > 0 && may_obtain() ? obtain_device(0) : nil;
}

NSArray *
MTLCopyAllDevices(void)
{
    SOFT_CALLED();
    id devices[MOST_DEVICES];
    NSUInteger count = 0;
    if (may_obtain()) {
        while (count < count_devices() &&
               (devices[count] = obtain_device((unsigned)count)) != nil) {
            count += 1;
        }
    }
    NSArray *array = [[NSArray alloc] initWithObjects:devices count:count];
    while (count > 0) {
        count -= 1;
        [devices[count] release];
    }
    return array;
}

@implementation SoftMetalDevice

- (void)dealloc
{
    if (!soft_process_is_forked()) {
        pthread_mutex_lock(&table_lock);
        if (table[_index] == self) {
            table[_index] = nil;
        }
        pthread_mutex_unlock(&table_lock);
    }
    [super dealloc];
}

- (NSString *)name
{
    char name[48], number[12] = "";
    if (_index > 0) {
        snprintf(number, sizeof number, " %u", _index + 1);
    }
    snprintf(name, sizeof name, "%s%s%s",
             is_paravirtual(_index) ? "Apple Paravirtual device" : "Software Metal", number,
             is_discrete(_index) ? " (discrete)" : "");
    return [NSString stringWithUTF8String:name];
}

- (uint64_t)registryID
{
    return FIRST_REGISTRY_ID + _index;
}

- (BOOL)hasUnifiedMemory
{
    return !is_discrete(_index);
}

- (uint64_t)recommendedMaxWorkingSetSize
{
    uint64_t limit = soft_settings_get(SOFT_MEMORY_LIMIT);
    return limit != 0 ? limit : soft_settings_get(SOFT_MAX_BUFFER_LENGTH);
}

- (NSUInteger)maxBufferLength
{
    return soft_settings_get(SOFT_MAX_BUFFER_LENGTH);
}

- (NSUInteger)currentAllocatedSize
{
    return __atomic_load_n(_account, __ATOMIC_RELAXED);
}

- (NSUInteger)maxThreadgroupMemoryLength
{
    return SOFT_MOST_THREADGROUP_NBYTES;
}

/* Ask this first in every call that makes something. */
static BOOL
may_make(const char *method, soft_failure kind)
{
    return SOFT_DEMAND(!soft_process_is_forked(), SOFT_REPORT_FORK,
                       "-[MTLDevice %s] in a child of fork().", method) &&
           !soft_failure_strikes(kind, NULL) && !soft_failure_devices_are_removed();
}

static BOOL
may_make_buffer(const char *method, NSUInteger length, MTLResourceOptions options)
{
    const MTLResourceOptions known = MTLResourceCPUCacheModeWriteCombined | 0x30 | 0x300;
    NSUInteger most = soft_settings_get(SOFT_MAX_BUFFER_LENGTH);
    NSUInteger storage = options >> MTLResourceStorageModeShift & 0xf;
    NSUInteger hazard = options >> MTLResourceHazardTrackingModeShift & 0x3;
    return may_make(method, SOFT_FAIL_BUFFER) &&
           SOFT_DEMAND(length > 0, SOFT_REPORT_ZERO_LENGTH,
                       "-[MTLDevice %s]: cannot create a buffer of zero length.", method) &&
           SOFT_DEMAND(length <= most, SOFT_REPORT_OVER_MAXIMUM,
                       "-[MTLDevice %s]: the length (%lu) is over the maximum buffer length "
                       "(%lu).",
                       method, length, most) &&
           SOFT_DEMAND(
               (options & ~known) == 0 && storage != MTLStorageModeMemoryless && hazard != 3,
               SOFT_REPORT_ARGUMENT,
               "-[MTLDevice %s]: the options (0x%lx) hold bits that mean nothing for a buffer.",
               method, options);
}

static SoftMetalBuffer *
make_buffer(SoftMetalDevice *device, NSUInteger length, const void *bytes, BOOL no_copy,
            MTLResourceOptions options)
{
    NSUInteger mode = options >> MTLResourceStorageModeShift & 0xf;
    soft_storage *storage =
        soft_storage_new((soft_storage_mode)mode, length, bytes, no_copy, device->_account);
    if (storage == NULL) {
        return nil;
    }
    storage->is_tracked = (options & MTLResourceHazardTrackingModeUntracked) == 0;
    SoftMetalBuffer *buffer = [[SoftMetalBuffer alloc] initWithDevice:device
                                                              storage:storage
                                                              options:options];
    if (buffer == nil) {
        soft_storage_release(storage);
    }
    return buffer;
}

- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options
{
    SOFT_CALLED();
    return may_make_buffer("newBufferWithLength:options:", length, options)
               ? make_buffer(self, length, NULL, NO, options)
               : nil;
}

- (id<MTLBuffer>)newBufferWithBytes:(const void *)pointer
                             length:(NSUInteger)length
                            options:(MTLResourceOptions)options
{
    SOFT_CALLED();
    const char *method = "newBufferWithBytes:length:options:";
    return may_make_buffer(method, length, options) &&
                   SOFT_DEMAND(pointer != NULL, SOFT_REPORT_ARGUMENT,
                               "-[MTLDevice %s]: the pointer is NULL.", method)
               ? make_buffer(self, length, pointer, NO, options)
               : nil;
}

static BOOL
can_wrap(const char *method, const void *pointer, NSUInteger length, MTLResourceOptions options)
{
    size_t page = soft_storage_page_size();
    NSUInteger mode = options >> MTLResourceStorageModeShift & 0xf;
    return SOFT_DEMAND(
               pointer != NULL && (uintptr_t)pointer % page == 0 && length % page == 0,
               SOFT_REPORT_NO_COPY_ALIGNMENT,
               "-[MTLDevice %s]: the pointer (%p) and the length (%lu) must be multiples of "
               "the page size (%zu).",
               method, pointer, length, page) &&
           SOFT_DEMAND(mode != MTLStorageModePrivate, SOFT_REPORT_ARGUMENT,
                       "-[MTLDevice %s]: memory of the CPU cannot be private.", method);
}

/* What Metal was seen to give, or might. */
static SoftMetalBuffer *
make_buffer_over(SoftMetalDevice *device, NSUInteger length, void *pointer,
                 MTLResourceOptions options)
{
    switch ((soft_no_copy)soft_settings_get(SOFT_NO_COPY)) {
    case SOFT_NO_COPY_REFUSED: return nil;
    case SOFT_NO_COPY_SHORT: return make_buffer(device, length - 1, pointer, YES, options);
    case SOFT_NO_COPY_MOVED: return make_buffer(device, length, pointer, NO, options);
    default: return make_buffer(device, length, pointer, YES, options);
    }
}

- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)pointer
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(const void *)deallocator
{
    SOFT_CALLED();
    const char *method = "newBufferWithBytesNoCopy:length:options:deallocator:";
    if (!may_make_buffer(method, length, options) ||
        !can_wrap(method, pointer, length, options)) {
        return nil;
    }
    const void *copy = soft_block_copy(deallocator);
    if (copy == NULL && deallocator != NULL) {
        return nil;
    }
    SoftMetalBuffer *buffer = make_buffer_over(self, length, pointer, options);
    if (buffer == nil) {
        if (copy != NULL && soft_settings_get(SOFT_NO_COPY) == SOFT_NO_COPY_REFUSED) {
            soft_block_call_with_length(copy, pointer, length);
        }
        soft_block_release(copy);
        return nil;
    }
    buffer->_deallocator = copy;
    return buffer;
}

static SoftMetalQueue *
make_queue(SoftMetalDevice *device, NSUInteger limit)
{
    return may_make("newCommandQueue...", SOFT_FAIL_QUEUE) &&
                   SOFT_DEMAND(limit != 0, SOFT_REPORT_ARGUMENT,
                               "-[MTLDevice newCommandQueueWithMaxCommandBufferCount:]: the "
                               "count is zero.")
               ? [[SoftMetalQueue alloc] initWithDevice:device limit:limit]
               : nil;
}

- (BOOL)respondsToSelector:(SEL)selector
{
    return [super respondsToSelector:selector] &&
           !(soft_macos() < 15 &&
             sel_isEqual(selector, @selector(newResidencySetWithDescriptor:error:)));
}

- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor *)descriptor
                                               error:(NSError **)error
{
    SOFT_CALLED();
    (void)error;
    return may_make("newResidencySetWithDescriptor:error:", SOFT_FAIL_RESIDENCY) &&
                   SOFT_DEMAND(descriptor != nil, SOFT_REPORT_ARGUMENT,
                               "-[MTLDevice newResidencySetWithDescriptor:error:]: the "
                               "descriptor is nil.")
               ? [[SoftMetalResidencySet alloc] init]
               : nil;
}

- (id<MTLCommandQueue>)newCommandQueue
{
    SOFT_CALLED();
    return make_queue(self, soft_settings_get(SOFT_QUEUE_DEPTH));
}

- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:
    (NSUInteger)maxCommandBufferCount
{
    SOFT_CALLED();
    return make_queue(self, maxCommandBufferCount);
}

- (id<MTLSharedEvent>)newSharedEvent
{
    SOFT_CALLED();
    return may_make("newSharedEvent", SOFT_FAIL_EVENT)
               ? [[SoftMetalEvent alloc] initWithDevice:self]
               : nil;
}

- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source
                               options:(MTLCompileOptions *)options
                                 error:(NSError **)error
{
    SOFT_CALLED();
    const char *method = "newLibraryWithSource:options:error:";
    if (!SOFT_DEMAND(source != nil, SOFT_REPORT_ARGUMENT, "-[MTLDevice %s]: the source is nil.",
                     method)) {
        return nil;
    }
    if (!may_make(method, SOFT_FAIL_LIBRARY)) {
        soft_error_set(error, MTLLibraryErrorCompileFailure, "The source did not compile.");
        return nil;
    }
    MTLLanguageVersion language =
        options == nil ? SOFT_DEFAULT_LANGUAGE : [options languageVersion];
    SoftMetalLibrary *library = [[SoftMetalLibrary alloc] initWithDevice:self
                                                                  source:source
                                                                language:language];
    if (![library open:error]) {
        [library release];
        return nil;
    }
    return library;
}

/* +1, or nil with an error. */
static SoftMetalPipeline *
make_pipeline(const char *method, id<MTLFunction> function, NSError **error)
{
    if (!SOFT_DEMAND([(NSObject *)function isKindOfClass:[SoftMetalFunction class]],
                     SOFT_REPORT_ARGUMENT, "-[MTLDevice %s...]: the function is nil.",
                     method)) {
        return nil;
    }
    if (!may_make(method, SOFT_FAIL_PIPELINE)) {
        soft_error_set(error, MTLLibraryErrorInternal, "The pipeline could not be made.");
        return nil;
    }
    return [[SoftMetalPipeline alloc] initWithFunction:(SoftMetalFunction *)function
                                                 error:error];
}

- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:
                                   (id<MTLFunction>)computeFunction
                                                             error:(NSError **)error
{
    SOFT_CALLED();
    return make_pipeline("newComputePipelineStateWithFunction:", computeFunction, error);
}

- (id<MTLComputePipelineState>)
    newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor *)descriptor
                                  options:(MTLPipelineOption)options
                               reflection:(MTLAutoreleasedComputePipelineReflection *)reflection
                                    error:(NSError **)error
{
    SOFT_CALLED();
    SoftMetalPipeline *pipeline =
        make_pipeline("newComputePipelineStateWithDescriptor:", [descriptor computeFunction],
                      error);
    [pipeline setLabel:[descriptor label]];
    if (pipeline != nil && reflection != NULL && options != MTLPipelineOptionNone) {
        *reflection = [pipeline reflect];
    }
    return pipeline;
}

- (id<MTLComputePipelineState>)
    newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                                options:(MTLPipelineOption)options
                             reflection:(MTLAutoreleasedComputePipelineReflection *)reflection
                                  error:(NSError **)error
{
    MTLComputePipelineDescriptor *descriptor = [[MTLComputePipelineDescriptor alloc] init];
    [descriptor setComputeFunction:computeFunction];
    id<MTLComputePipelineState> made = [self newComputePipelineStateWithDescriptor:descriptor
                                                                           options:options
                                                                        reflection:reflection
                                                                             error:error];
    [descriptor release];
    return made;
}

- (id<MTLTexture>)newTextureWithDescriptor:(MTLTextureDescriptor *)descriptor
{
    SOFT_CALLED();
    soft_texture as;
    if (!may_make("newTextureWithDescriptor:", SOFT_FAIL_TEXTURE) ||
        !soft_texture_describe(descriptor, &as) || as.nbytes > [self maxBufferLength]) {
        return nil;
    }
    MTLResourceOptions options = [descriptor resourceOptions];
    return soft_texture_make(make_buffer(self, as.nbytes, NULL, NO, options), &as,
                             [descriptor usage]);
}

- (NSUInteger)minimumLinearTextureAlignmentForPixelFormat:(MTLPixelFormat)format
{
    const pixel_format *found = pixel_format_of_number((unsigned)format);
    return SOFT_DEMAND(found != NULL && found->kind != PIXEL_DEPTH, SOFT_REPORT_TEXTURE,
                       "-[MTLDevice minimumLinearTextureAlignmentForPixelFormat:]: the format "
                       "(%lu) is none of a linear texture.",
                       format)
               ? SOFT_LINEAR_ALIGNMENT
               : 0;
}

- (NSUInteger)minimumTextureBufferAlignmentForPixelFormat:(MTLPixelFormat)format
{
    return [self minimumLinearTextureAlignmentForPixelFormat:format];
}

- (id<MTLSamplerState>)newSamplerStateWithDescriptor:(MTLSamplerDescriptor *)descriptor
{
    SOFT_CALLED();
    return may_make("newSamplerStateWithDescriptor:", SOFT_FAIL_SAMPLER)
               ? soft_sampler_make(self, descriptor)
               : nil;
}

- (id<MTLFence>)newFence
{
    SOFT_CALLED();
    return may_make("newFence", SOFT_FAIL_FENCE) ? [[SoftMetalFence alloc] initWithDevice:self]
                                                 : nil;
}

@end
