/* kernels.m: MTLComputePipelineState: made of a function, described, encoded. */
#import "bridge/parts.h"

/* +1, or nil with `*failure`.  A function with constants must be specialised, even by none. */
static id<MTLFunction>
make_function(id<MTLLibrary> library, NSString *name, const bridge_constant *constants,
              size_t count, NSError **failure)
{
    id<MTLFunction> plain = [library newFunctionWithName:name];
    if (plain != nil && count == 0 && [[plain functionConstantsDictionary] count] == 0) {
        return plain;
    }
    [plain release];
    MTLFunctionConstantValues *values = [[MTLFunctionConstantValues alloc] init];
    for (size_t i = 0; i < count; i++) {
        [values setConstantValue:constants[i].value
                            type:constants[i].data_type
                         atIndex:constants[i].index];
    }
    id<MTLFunction> function = [library newFunctionWithName:name
                                             constantValues:values
                                                      error:failure];
    [values release];
    return function;
}

/* No array is 0 or 1: no page says which. */
static size_t
at_least_one(NSUInteger count)
{
    return count == 0 ? 1 : count;
}

static bridge_parameter
describe_binding(id<MTLBinding> binding, char *name)
{
    bridge_parameter parameter = {
        .name = name,
        .kind = BRIDGE_PARAMETER_OTHER,
        .is_read = [binding access] != MTLBindingAccessWriteOnly,
        .is_written = [binding access] != MTLBindingAccessReadOnly,
        .is_used = [binding isUsed],
        .index = (unsigned)[binding index],
        .count = 1,
    };
    if ([binding type] == MTLBindingTypeBuffer) {
        id<MTLBufferBinding> buffer = (id<MTLBufferBinding>)binding;
        parameter.kind = BRIDGE_PARAMETER_BUFFER;
        parameter.data_type = (unsigned)[buffer bufferDataType];
        parameter.nbytes = [buffer bufferDataSize];
        parameter.alignment = [buffer bufferAlignment];
    }
    else if ([binding type] == MTLBindingTypeTexture) {
        id<MTLTextureBinding> texture = (id<MTLTextureBinding>)binding;
        parameter.kind = BRIDGE_PARAMETER_TEXTURE;
        parameter.data_type = (unsigned)[texture textureDataType];
        parameter.texture_type = (unsigned)[texture textureType];
        parameter.is_depth = [texture isDepthTexture];
        parameter.count = at_least_one([texture arrayLength]);
    }
    else if ([binding type] == MTLBindingTypeSampler) {
        parameter.kind = BRIDGE_PARAMETER_SAMPLER;
    }
    else if ([binding type] == MTLBindingTypeThreadgroupMemory) {
        id<MTLThreadgroupBinding> room = (id<MTLThreadgroupBinding>)binding;
        parameter.kind = BRIDGE_PARAMETER_THREADGROUP;
        parameter.nbytes = [room threadgroupMemoryDataSize];
        parameter.alignment = [room threadgroupMemoryAlignment];
    }
    return parameter;
}

static bridge_status
describe_kernel(id<MTLComputePipelineState> kernel, NSArray *bindings,
                bridge_kernel_facts *facts)
{
    size_t nbytes = 0, count = [bindings count];
    for (size_t i = 0; i < count; i++) {
        nbytes += text_nbytes([(id<MTLBinding>)[bindings objectAtIndex:i] name]);
    }
    text_block block = make_text_block(count * sizeof(bridge_parameter), nbytes);
    bridge_parameter *parameters = (bridge_parameter *)(void *)block.memory;
    if (parameters == NULL) {
        return BRIDGE_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        id<MTLBinding> binding = (id<MTLBinding>)[bindings objectAtIndex:i];
        parameters[i] = describe_binding(binding, add_text(&block, [binding name]));
    }
    *facts = (bridge_kernel_facts){
        .width = [kernel threadExecutionWidth],
        .max_threads = [kernel maxTotalThreadsPerThreadgroup],
        .threadgroup_nbytes = [kernel staticThreadgroupMemoryLength],
        .max_threadgroup_nbytes = [[kernel device] maxThreadgroupMemoryLength],
        .count = count,
        .parameters = parameters,
    };
    return BRIDGE_OK;
}

/* `*failure` where the status is BRIDGE_NO_KERNEL; `*out` is +1. */
static bridge_status
make_kernel(id<MTLDevice> device, id<MTLFunction> function, NSString *name,
            bridge_kernel_facts *facts, id<MTLComputePipelineState> *out, NSError **failure)
{
    MTLComputePipelineReflection *reflection = nil;
    MTLPipelineOption wanted = MTLPipelineOptionBindingInfo | MTLPipelineOptionBufferTypeInfo;
    MTLComputePipelineDescriptor *descriptor = [[MTLComputePipelineDescriptor alloc] init];
    [descriptor setComputeFunction:function];
    [descriptor setLabel:name];
    *out = [device
        newComputePipelineStateWithDescriptor:descriptor
                                      options:facts == NULL ? MTLPipelineOptionNone : wanted
                                   reflection:facts == NULL ? NULL : &reflection
                                        error:failure];
    [descriptor release];
    if (*out == nil) {
        return BRIDGE_NO_KERNEL;
    }
    bridge_status status =
        facts == NULL ? BRIDGE_OK : describe_kernel(*out, [reflection bindings], facts);
    if (status != BRIDGE_OK) {
        [*out release];
        *out = nil;
    }
    return status;
}

bridge_status
bridge_kernel_new(bridge_library *library, const char *function,
                  const bridge_constant *constants, size_t count, bridge_kernel **out,
                  bridge_kernel_facts *facts, char **message, bool *is_source)
{
    *out = NULL;
    *message = NULL;
    if (bridge_is_forked()) {
        return BRIDGE_FORKED; /* mutant survives (constant returned): callers refuse before */
    }
    IN_POOL;
    NSError *failure = nil;
    bridge_status status = BRIDGE_NO_KERNEL;
    id<MTLComputePipelineState> kernel = nil;
    NSString *name = [NSString stringWithUTF8String:function];
    id<MTLFunction> found =
        name == nil ? nil
                    : make_function(library_object(library), name, constants, count, &failure);
    if (found != nil) {
        status = make_kernel([library_object(library) device], found, name, facts, &kernel,
                             &failure);
        [found release];
    }
    if (status == BRIDGE_NO_KERNEL) {
        status = refuse(failure, message, is_source);
    }
    *out = (bridge_kernel *)(void *)kernel;
    return status;
}

void
bridge_kernel_release(bridge_kernel *kernel)
{
    release_object(kernel);
}

#define GROUP_THREADS 256 /* in one threadgroup, where the pipeline takes as many */
#define GROUP_DEPTH 64    /* the most along z that any GPU takes */

/* As many threads as fit, along x first: neighbours there touch neighbouring memory. */
static MTLSize
choose_group(id<MTLComputePipelineState> kernel, const size_t grid[3])
{
    NSUInteger most = at_most([kernel maxTotalThreadsPerThreadgroup], GROUP_THREADS);
    NSUInteger width = at_most(grid[0], most);
    NSUInteger height = at_most(grid[1], most / width);
    NSUInteger depth = at_most(most / (width * height), GROUP_DEPTH);
    return (MTLSize){width, height, at_most(grid[2], depth)};
}

/* To the checker: how many bytes the kernel may touch. */
static void
note_view(id<MTLComputeCommandEncoder> encoder, const bridge_argument *argument)
{
#ifndef __APPLE__
    if (argument->texture != NULL) {
        return; /* it has its bounds */
    }
    if (argument->is_resource) {
        softmetal_note_resource(encoder, argument->index,
                                argument->offset_bytes - argument->nbytes_before,
                                argument->nbytes);
    }
    else if (argument->is_empty || argument->nbytes != 0) {
        softmetal_note_view(encoder, argument->index, argument->nbytes_before,
                            argument->is_empty ? 0 : argument->nbytes);
    }
#else
    (void)encoder, (void)argument;
#endif
}

static id<MTLResource>
resource_object(const bridge_argument *argument)
{
    return argument->texture != NULL ? (id<MTLResource>)texture_object(argument->texture)
                                     : (id<MTLResource>)buffer_object(argument->buffer);
}

static void
set_arguments(id<MTLComputeCommandEncoder> encoder, const bridge_argument *arguments, int count)
{
    for (int i = 0; i < count; i++) {
        const bridge_argument *argument = &arguments[i];
        if (argument->is_threadgroup) {
            [encoder setThreadgroupMemoryLength:argument->nbytes atIndex:argument->index];
        }
        else if (argument->is_resource) {
            [encoder useResource:resource_object(argument)
                           usage:argument->is_read_only
                                     ? MTLResourceUsageRead
                                     : MTLResourceUsageRead | MTLResourceUsageWrite];
            note_view(encoder, argument);
        }
        else if (argument->texture != NULL) {
            [encoder setTexture:texture_object(argument->texture) atIndex:argument->index];
        }
        else if (argument->sampler != NULL) {
            [encoder setSamplerState:sampler_object(argument->sampler) atIndex:argument->index];
        }
        else if (argument->buffer != NULL) {
            [encoder setBuffer:buffer_object(argument->buffer)
                        offset:argument->offset_bytes
                       atIndex:argument->index];
            note_view(encoder, argument);
        }
        else {
            [encoder setBytes:argument->bytes length:argument->nbytes atIndex:argument->index];
            note_view(encoder, argument);
        }
    }
}

static void
dispatch(id<MTLComputeCommandEncoder> encoder, id<MTLComputePipelineState> kernel,
         const bridge_grid *grid)
{
    MTLSize size = {grid->size[0], grid->size[1], grid->size[2]};
    MTLSize group = {grid->group[0], grid->group[1], grid->group[2]};
    if (grid->is_groups) {
        [encoder dispatchThreadgroups:size threadsPerThreadgroup:group];
    }
    else {
        group = group.width == 0 ? choose_group(kernel, grid->size) : group;
        [encoder dispatchThreads:size threadsPerThreadgroup:group];
    }
}

bridge_status
bridge_encode_kernel(bridge_commands *commands, bool is_ours, bridge_kernel *kernel,
                     const bridge_argument *arguments, int count, const bridge_grid *grid)
{
    IN_POOL;
    id<MTLComputeCommandEncoder> encoder = [commands_object(commands) computeCommandEncoder];
    if (encoder != nil) {
        NSString *label = [kernel_object(kernel) label];
        [encoder setLabel:label];
        if (is_ours) {
            [commands_object(commands) setLabel:label];
        }
        [encoder setComputePipelineState:kernel_object(kernel)];
        set_arguments(encoder, arguments, count);
        dispatch(encoder, kernel_object(kernel), grid);
        [encoder endEncoding]; /* of a kernel */
    }
    return encoder == nil ? BRIDGE_NO_COMMAND : BRIDGE_OK;
}
