/* pipeline.m: compute pipelines, and what they say of their arguments.
 *
 * Owns:    a pipeline its image.
 * Calls:   kernels/image.h, kernel.h.
 * Threads: any; nothing here changes once made.
 */
#import "softmetal/apple/objects.h"

#include <stdio.h>
#include <stdlib.h>

#include "softmetal/checker/counts.h"
#include "softmetal/host.h"

/* ---- reflection ---- */

/* Any kind: who asks for a buffer's facts has asked for the type before. */
@interface SoftMetalBinding
    : NSObject <MTLBufferBinding, MTLThreadgroupBinding, MTLTextureBinding> {
  @private
    soft_loaded_image *_image; /* owned (+1): the facts are its */
    const soft_argument_facts *_facts;
}
- (instancetype)initWithImage:(soft_loaded_image *)image
                        facts:(const soft_argument_facts *)facts;
@end

@implementation SoftMetalBinding

- (instancetype)initWithImage:(soft_loaded_image *)image
                        facts:(const soft_argument_facts *)facts
{
    self = [super init];
    _image = soft_image_retain(image);
    _facts = facts;
    return self;
}

- (void)dealloc
{
    soft_image_release(_image);
    [super dealloc];
}

- (NSString *)name
{
    return [NSString stringWithUTF8String:_facts->name];
}

- (MTLBindingType)type
{
    switch ((soft_argument_kind)_facts->kind) {
    case SOFT_ARGUMENT_TEXTURE: return MTLBindingTypeTexture;
    case SOFT_ARGUMENT_SAMPLER: return MTLBindingTypeSampler;
    case SOFT_ARGUMENT_THREADGROUP: return MTLBindingTypeThreadgroupMemory;
    default: return MTLBindingTypeBuffer;
    }
}

/* Whether a kernel reads what it may write is not known, but of a texture. */
- (MTLBindingAccess)access
{
    if (_facts->kind == SOFT_ARGUMENT_TEXTURE && !_facts->is_read) {
        return MTLBindingAccessWriteOnly;
    }
    return _facts->is_written ? MTLBindingAccessReadWrite : MTLBindingAccessReadOnly;
}

- (NSUInteger)index
{
    return _facts->index;
}

- (BOOL)isUsed
{
    return YES;
}

- (NSUInteger)bufferAlignment
{
    return _facts->alignment;
}

- (NSUInteger)bufferDataSize
{
    return _facts->nbytes;
}

- (MTLDataType)bufferDataType
{
    return _facts->data_type;
}

- (NSUInteger)threadgroupMemoryAlignment
{
    return _facts->alignment;
}

- (NSUInteger)threadgroupMemoryDataSize
{
    return _facts->nbytes;
}

- (MTLTextureType)textureType
{
    return _facts->texture_type;
}

- (MTLDataType)textureDataType
{
    return _facts->data_type;
}

- (BOOL)isDepthTexture
{
    return _facts->is_depth;
}

/* 0 is Metal's word for no array.  SPEC MTLArgument.h MTLTextureBinding */
- (NSUInteger)arrayLength
{
    return _facts->count == 1 ? 0 : _facts->count;
}

@end

@implementation MTLComputePipelineReflection

- (instancetype)initWithImage:(soft_loaded_image *)image
{
    self = [super init];
    const soft_image *facts = image == NULL ? NULL : image->image;
    size_t count = facts == NULL ? 0 : facts->argument_count;
    id *bindings = calloc(count + 1, sizeof *bindings);
    if (bindings == NULL) {
        soft_end_without_memory("a kernel's arguments");
    }
    for (size_t i = 0; i < count; i++) { /* from the last on: no page promises an order */
        const soft_argument_facts *argument = &facts->arguments[count - 1 - i];
        bindings[i] = [[SoftMetalBinding alloc] initWithImage:image facts:argument];
        if (bindings[i] == nil) {
            soft_end_without_memory("a kernel's argument");
        }
    }
    _bindings = [[NSArray alloc] initWithObjects:bindings count:count];
    for (size_t i = 0; i < count; i++) {
        [bindings[i] release];
    }
    free(bindings);
    return self;
}

- (void)dealloc
{
    [_bindings release];
    [super dealloc];
}

@synthesize bindings = _bindings;

@end

/* ---- pipelines ---- */

@implementation MTLComputePipelineDescriptor

- (void)dealloc
{
    [_label release];
    [(NSObject *)_computeFunction release];
    [super dealloc];
}

- (NSString *)label
{
    return _label;
}

- (void)setLabel:(NSString *)label
{
    NSString *before = _label;
    _label = [label copy];
    [before release];
}

- (id<MTLFunction>)computeFunction
{
    return _computeFunction;
}

- (void)setComputeFunction:(id<MTLFunction>)computeFunction
{
    id<MTLFunction> before = _computeFunction;
    _computeFunction = [computeFunction retain];
    [before release];
}

@end

@implementation SoftMetalPipeline

/* Steals the image, NULL of which is an error that was told. */
- (BOOL)takeImage:(soft_loaded_image *)image error:(NSError **)error
{
    _kernel.image = image;
    if (image == NULL) {
        return NO;
    }
    const soft_image *facts = image->image;
    if (facts->threadgroup_nbytes > SOFT_MOST_THREADGROUP_NBYTES) {
        char text[160];
        snprintf(text, sizeof text,
                 "Threadgroup memory size (%llu) exceeds the maximum threadgroup memory "
                 "allowed (%d).",
                 (unsigned long long)facts->threadgroup_nbytes, SOFT_MOST_THREADGROUP_NBYTES);
        soft_error_set(error, MTLLibraryErrorCompileFailure, text);
        return NO;
    }
    for (soft_u32 i = 0; i < facts->argument_count; i++) {
        const soft_argument_facts *argument = &facts->arguments[i];
        if (argument->kind == SOFT_ARGUMENT_BUFFER && argument->is_written) {
            _kernel.written |= 1u << argument->index;
        }
    }
    return YES;
}

- (instancetype)initWithFunction:(SoftMetalFunction *)function error:(NSError **)error
{
    self = [super init];
    _device = [(SoftMetalDevice *)[function device] retain];
    _kernel = function->_kernel;
    BOOL isCompiled = function->_facts != NULL, isGood = YES;
    if (isCompiled) {
        isGood = [self takeImage:[function compileForCounting:NO error:error] error:error];
    }
    if (isCompiled && isGood && soft_counts_are_asked()) {
        _kernel.counting = [function compileForCounting:YES error:error];
        isGood = _kernel.counting != NULL;
    }
    if (!isGood) {
        [self release];
        return nil;
    }
    return self;
}

- (void)dealloc
{
    soft_image_release(_kernel.image);
    soft_image_release(_kernel.counting);
    [_device release];
    [super dealloc];
}

- (MTLComputePipelineReflection *)reflect
{
    return [[[MTLComputePipelineReflection alloc] initWithImage:_kernel.image] autorelease];
}

@synthesize device = _device;

- (NSUInteger)maxTotalThreadsPerThreadgroup
{
    return SOFT_MOST_THREADS;
}

- (NSUInteger)threadExecutionWidth
{
    return SOFT_SIMD_WIDTH;
}

- (NSUInteger)staticThreadgroupMemoryLength
{
    return _kernel.image == NULL ? 0 : _kernel.image->image->threadgroup_nbytes;
}

@end
