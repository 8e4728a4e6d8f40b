/* libraries.m: what a compiler makes of a text, and the kernels that it gives.
 *
 * The compiler knows the same kernels whatever the text: some of images/, compiled beforehand.
 */
#import "check.h"

#include <stdint.h>

#include "image_path.h"
#include "softmetal/compiler.h"

/* ---- a compiler ---- */

static int opened, compiled;
static soft_math last_math;

static soft_functions *
open_text(const char *source, soft_math math, soft_compile_error *error)
{
    opened++;
    last_math = math;
    if (strstr(source, "wrong") != NULL || strstr(source, "Ctrl-C") != NULL) {
        bool is_interrupt = strstr(source, "Ctrl-C") != NULL;
        *error =
            (soft_compile_error){is_interrupt ? 2 : 3,
                                 is_interrupt ? NULL : strdup("program_source:1:1: wrong")};
        return NULL;
    }
    soft_functions *functions = soft_functions_new();
    CHECK(soft_functions_add(functions, "room") && soft_functions_add(functions, "add"));
    CHECK(soft_functions_add_constant(functions, "by", "float3", 7, true));
    CHECK(soft_functions_add_constant(functions, "is_long", "bool", 2, false));
    CHECK(!soft_functions_add_constant(functions, "odd", "float5", 3, false));
    CHECK(soft_functions_add(functions, "vast") && soft_functions_add(functions, "no_image"));
    CHECK(soft_functions_add(functions, "too_much_memory"));
    return functions;
}

static char *
compile_text(const char *source, soft_math math, const char *function,
             const soft_constant_value *values, size_t count, soft_compile_error *error)
{
    compiled++;
    (void)source, (void)math, (void)error;
    if (strcmp(function, "add") == 0) {
        CHECK(count >= 1 && values[0].index == 7 && values[0].nbytes == 16);
        float by[4];
        memcpy(by, values[0].bytes, sizeof by);
        CHECK(by[2] == 3);
    }
    char *path = malloc(IMAGE_PATH_SIZE);
    CHECK(path != NULL);
    find_image(function, path);
    return path;
}

static const softmetal_compiler compiler = {.open = open_text, .compile = compile_text};

static NSString *
text_of(const char *text)
{
    return [NSString stringWithUTF8String:text];
}

static id<MTLLibrary>
open_library(id<MTLDevice> device)
{
    softmetal_set_compiler(&compiler);
    NSError *error = nil;
    id<MTLLibrary> library = [device newLibraryWithSource:text_of("kernel void ...")
                                                  options:nil
                                                    error:&error];
    CHECK(library != nil && error == nil);
    return library;
}

static MTLFunctionConstantValues *
make_values(void)
{
    static const float by[4] = {1, 2, 3};
    MTLFunctionConstantValues *values = [[MTLFunctionConstantValues alloc] init];
    [values setConstantValue:"\0\0\0\0" type:MTLDataTypeFloat atIndex:7];
    [values setConstantValue:by type:MTLDataTypeFloat3 atIndex:7];
    return values;
}

static id<MTLComputePipelineState>
make_pipeline(id<MTLLibrary> library, const char *name,
              MTLComputePipelineReflection **reflection, NSError **error)
{
    MTLFunctionConstantValues *values = make_values();
    id<MTLFunction> function = [library newFunctionWithName:text_of(name)
                                             constantValues:values
                                                      error:error];
    CHECK(function != nil);
    id<MTLComputePipelineState> pipeline =
        [[library device] newComputePipelineStateWithFunction:function
                                                      options:MTLPipelineOptionBindingInfo
                                                   reflection:reflection
                                                        error:error];
    [values release];
    [function release];
    return pipeline;
}

/* ---- libraries and functions ---- */

CASE(a_library_names_its_functions_and_their_constants)
{
    id<MTLDevice> device = open_device();
    id<MTLLibrary> library = open_library(device);
    CHECK([[library functionNames] count] == 5);
    CHECK([text_of("room") isEqual:[[library functionNames] objectAtIndex:0]]);
    id<MTLFunction> function = [[library newFunctionWithName:text_of("add")] autorelease];
    NSDictionary *constants = [function functionConstantsDictionary];
    NSEnumerator *names = [constants keyEnumerator];
    CHECK([constants count] == 2);
    CHECK([[names nextObject] isEqual:text_of("by")]);
    CHECK([[names nextObject] isEqual:text_of("is_long")] && [names nextObject] == nil);
    MTLFunctionConstant *by = [constants objectForKey:text_of("by")];
    CHECK([[by name] isEqual:text_of("by")] && [by index] == 7 && [by required]);
    CHECK([by type] == MTLDataTypeFloat3);
    CHECK(![[constants objectForKey:text_of("is_long")] required]);
    CHECK([constants objectForKey:text_of("odd")] == nil);
    CHECK([library newFunctionWithName:text_of("absent")] == nil);
    [library release];
}

CASE(a_text_that_does_not_compile_gives_the_compilers_words)
{
    id<MTLDevice> device = open_device();
    NSError *error = nil;
    softmetal_set_compiler(&compiler);
    CHECK([device newLibraryWithSource:text_of("wrong") options:nil error:&error] == nil);
    CHECK([error domain] == MTLLibraryErrorDomain);
    CHECK([error code] == MTLLibraryErrorCompileFailure);
    CHECK([[error localizedDescription] isEqual:text_of("program_source:1:1: wrong")]);
    CHECK([device newLibraryWithSource:text_of("wrong") options:nil error:NULL] == nil);
}

CASE(a_compiler_that_is_interrupted_gives_no_library_and_no_error)
{
    id<MTLDevice> device = open_device();
    NSError *error = (NSError *)device;
    softmetal_set_compiler(&compiler);
    CHECK([device newLibraryWithSource:text_of("Ctrl-C") options:nil error:&error] == nil);
    CHECK(error == nil);
}

CASE(a_text_that_names_a_registered_kernel_is_not_compiled)
{
    id<MTLDevice> device = open_device();
    softmetal_set_compiler(&compiler);
    CHECK(softmetal_register_kernel("in_c", NULL, 1) == 0);
    id<MTLLibrary> library = [device newLibraryWithSource:text_of("kernel void in_c(...)")
                                                  options:nil
                                                    error:NULL];
    id<MTLFunction> function = [library newFunctionWithName:text_of("in_c")];
    CHECK(function != nil && opened == 0);
    CHECK([library newFunctionWithName:text_of("add")] == nil);
    [function release];
    [library release];
    library = open_library(device);
    CHECK([library newFunctionWithName:text_of("in_c")] == nil);
    [library release];
}

CASE(the_options_choose_the_math)
{
    id<MTLDevice> device = open_device();
    MTLCompileOptions *options = [[[MTLCompileOptions alloc] init] autorelease];
    CHECK([options fastMathEnabled] && [options mathMode] == MTLMathModeFast);
    [open_library(device) release];
    CHECK(last_math == SOFT_MATH_FAST);
    [options setMathMode:MTLMathModeRelaxed];
    [[device newLibraryWithSource:text_of("") options:options error:NULL] release];
    CHECK(last_math == SOFT_MATH_RELAXED);
    [options setFastMathEnabled:NO];
    [[device newLibraryWithSource:text_of("") options:options error:NULL] release];
    CHECK(last_math == SOFT_MATH_SAFE);
}

CASE(a_function_constant_needs_a_value_of_its_type)
{
    id<MTLDevice> device = open_device();
    id<MTLLibrary> library = open_library(device);
    MTLFunctionConstantValues *values = [[[MTLFunctionConstantValues alloc] init] autorelease];
    NSError *error = nil;
    CHECK([library newFunctionWithName:text_of("add") constantValues:values
                                 error:&error] == nil);
    CHECK([error code] == MTLLibraryErrorCompileFailure);
    CHECK(strstr([[error localizedDescription] UTF8String], "by (index 7)") != NULL);
    [values setConstantValue:"\0\0\0\0" type:MTLDataTypeFloat atIndex:7];
    CHECK([library newFunctionWithName:text_of("add") constantValues:values
                                 error:&error] == nil);
    CHECK(strstr([[error localizedDescription] UTF8String], "4 bytes, its type 16") != NULL);
    CHECK([library newFunctionWithName:text_of("none") constantValues:values
                                 error:&error] == nil);
    CHECK([error code] == MTLLibraryErrorFunctionNotFound);
    [library release];
}

REPORTS("argument", a_constant_of_a_type_that_none_has)
{
    MTLFunctionConstantValues *values = [[[MTLFunctionConstantValues alloc] init] autorelease];
    [values setConstantValue:"" type:MTLDataTypeStruct atIndex:0];
}

/* ---- pipelines ---- */

CASE(a_pipeline_tells_what_its_arguments_are)
{
    id<MTLDevice> device = open_device();
    id<MTLLibrary> library = open_library(device);
    MTLComputePipelineReflection *reflection = nil;
    id<MTLComputePipelineState> pipeline = make_pipeline(library, "room", &reflection, NULL);
    CHECK([pipeline staticThreadgroupMemoryLength] == 16384);
    CHECK([pipeline maxTotalThreadsPerThreadgroup] == 1024);
    CHECK([device maxThreadgroupMemoryLength] == 32768);
    [pipeline release]; /* the reflection needs it no more */
    CHECK([[reflection bindings] count] == 2);
    id<MTLThreadgroupBinding> shared = [[reflection bindings] objectAtIndex:0];
    CHECK([shared type] == MTLBindingTypeThreadgroupMemory && [shared index] == 3);
    CHECK([shared threadgroupMemoryAlignment] == 4 && [shared threadgroupMemoryDataSize] == 4);
    id<MTLBufferBinding> out = [[reflection bindings] objectAtIndex:1];
    CHECK([[out name] isEqual:text_of("out")] && [out isUsed]);
    CHECK([out type] == MTLBindingTypeBuffer && [out access] == MTLBindingAccessReadWrite);
    CHECK([out bufferDataType] == MTLDataTypeUInt && [out bufferDataSize] == 4);
    CHECK([out bufferAlignment] == 4);
    pipeline = make_pipeline(library, "add", &reflection, NULL);
    out = [[reflection bindings] objectAtIndex:1];
    CHECK([out access] == MTLBindingAccessReadOnly);
    [pipeline release];
    [library release];
}

CASE(a_kernel_with_too_much_threadgroup_memory_has_no_pipeline)
{
    id<MTLDevice> device = open_device();
    id<MTLLibrary> library = open_library(device);
    NSError *error = nil;
    CHECK(make_pipeline(library, "vast", NULL, &error) == nil);
    CHECK([[error localizedDescription]
        isEqual:text_of(
                    "Threadgroup memory size (40000) exceeds the maximum threadgroup memory "
                    "allowed (32768).")]);
    [library release];
}

CASE(an_image_that_cannot_be_loaded_has_no_pipeline)
{
    id<MTLDevice> device = open_device();
    id<MTLLibrary> library = open_library(device);
    NSError *error = nil;
    CHECK(make_pipeline(library, "no_image", NULL, &error) == nil);
    CHECK([error code] == MTLLibraryErrorInternal);
    CHECK([[error localizedDescription] length] > 0);
    [library release];
}

CASE(a_library_keeps_the_compiler_that_opened_it)
{
    id<MTLDevice> device = open_device();
    id<MTLLibrary> library = open_library(device);
    NSError *error = nil;
    softmetal_set_compiler(NULL);
    [make_pipeline(library, "room", NULL, &error) release];
    CHECK(error == nil && compiled == 1);
    [library release];
}

/* ---- running them ---- */

struct scene {
    id<MTLDevice> device;
    id<MTLLibrary> library;
    id<MTLComputePipelineState> pipeline;
    id<MTLBuffer> out, a;
    id<MTLCommandQueue> queue;
    id<MTLCommandBuffer> commands;
    id<MTLComputeCommandEncoder> compute;
};

static struct scene
open_scene(const char *name)
{
    struct scene scene = {.device = open_device()};
    scene.library = open_library(scene.device);
    scene.pipeline = make_pipeline(scene.library, name, NULL, NULL);
    scene.out = [scene.device newBufferWithLength:64 options:MTLResourceStorageModeShared];
    scene.a = [scene.device newBufferWithLength:256 options:MTLResourceStorageModeShared];
    for (int i = 0; i < 64; i++) {
        ((int *)[scene.a contents])[i] = i;
    }
    scene.queue = [scene.device newCommandQueue];
    scene.commands = [scene.queue commandBuffer];
    scene.compute = [scene.commands computeCommandEncoder];
    [scene.compute setComputePipelineState:scene.pipeline];
    [scene.compute setBuffer:scene.out offset:0 atIndex:0];
    return scene;
}

static void
finish(struct scene *scene)
{
    [scene->compute endEncoding];
    [scene->commands commit];
    [scene->commands waitUntilCompleted];
}

static void
close_scene(struct scene scene)
{
    [scene.queue release];
    [scene.out release];
    [scene.a release];
    [scene.pipeline release];
    [scene.library release];
}

static void
dispatch(struct scene *scene, NSUInteger threads)
{
    [scene->compute dispatchThreads:(MTLSize){threads, 1, 1}
              threadsPerThreadgroup:(MTLSize){threads, 1, 1}];
}

CASE(a_compiled_kernel_runs_with_what_is_bound)
{
    struct scene scene = open_scene("add");
    int b = 100;
    const int *out = [scene.out contents];
    [scene.compute setBuffer:scene.a offset:16 atIndex:1];
    [scene.compute setBytes:&b length:sizeof b atIndex:2];
    dispatch(&scene, 8);
    [scene.compute setBuffer:scene.out offset:32 atIndex:0];
    b = 1000;
    [scene.compute setBytes:&b length:sizeof b atIndex:2];
    dispatch(&scene, 8);
    finish(&scene);
    for (int i = 0; i < 8; i++) {
        CHECK(out[i] == 4 * (i + 1) + 100 && out[8 + i] == 4 * (i + 1) + 1000);
    }
    close_scene(scene);
}

CASE(threadgroups_are_dispatched_whole)
{
    struct scene scene = open_scene("room");
    const uint32_t whole[] = {6, 4, 2, 3, 2, 1, 2, 2, 2, 48, 64};
    const uint32_t partial[] = {5, 1, 1, 3, 1, 1, 2, 1, 1, 48, 20};
    [scene.compute setThreadgroupMemoryLength:48 atIndex:3];
    [scene.compute dispatchThreadgroups:(MTLSize){3, 2, 1}
                  threadsPerThreadgroup:(MTLSize){2, 2, 2}];
    finish(&scene);
    CHECK(memcmp([scene.out contents], whole, sizeof whole) == 0);
    scene.commands = [scene.queue commandBuffer];
    scene.compute = [scene.commands computeCommandEncoder];
    [scene.compute setComputePipelineState:scene.pipeline];
    [scene.compute setThreadgroupMemoryLength:48 atIndex:3];
    [scene.compute setBuffer:scene.out offset:0 atIndex:0];
    softmetal_note_view(scene.compute, 0, 20);
    [scene.compute dispatchThreads:(MTLSize){5, 1, 1} threadsPerThreadgroup:(MTLSize){2, 1, 1}];
    finish(&scene);
    CHECK(memcmp([scene.out contents], partial, sizeof partial) == 0);
    close_scene(scene);
}

CASE(a_dispatch_outlives_its_pipeline)
{
    struct scene scene = open_scene("add");
    int b = 1;
    [scene.compute endEncoding];
    id<MTLCommandBuffer> commands = [scene.queue commandBufferWithUnretainedReferences];
    id<MTLComputeCommandEncoder> compute = [commands computeCommandEncoder];
    [compute setComputePipelineState:scene.pipeline];
    [compute setBuffer:scene.out offset:0 atIndex:0];
    [compute setBuffer:scene.a offset:0 atIndex:1];
    [compute setBytes:&b length:sizeof b atIndex:2];
    [compute dispatchThreads:(MTLSize){4, 1, 1} threadsPerThreadgroup:(MTLSize){4, 1, 1}];
    [compute endEncoding];
    [scene.pipeline release];
    scene.pipeline = nil;
    [commands commit];
    [commands waitUntilCompleted];
    CHECK(((const int *)[scene.out contents])[3] == 13);
    close_scene(scene);
}

CASE(a_kernel_that_is_stopped_fails_its_command_buffer_with_the_reason)
{
    struct scene scene = open_scene("too_much_memory");
    dispatch(&scene, 64);
    finish(&scene);
    CHECK([scene.commands status] == MTLCommandBufferStatusError);
    CHECK([[scene.commands error] domain] == MTLCommandBufferErrorDomain);
    CHECK([[scene.commands error] code] == MTLCommandBufferErrorInternal);
    CHECK(strstr([[[scene.commands error] localizedDescription] UTF8String], "32768") != NULL);
    close_scene(scene);
}

/* add, on a queue of its own. */
static void
submit_add(struct scene scene, id<MTLBuffer> out)
{
    int b = 1;
    id<MTLCommandQueue> queue = [[scene.device newCommandQueue] autorelease];
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLComputeCommandEncoder> compute = [commands computeCommandEncoder];
    [compute setComputePipelineState:scene.pipeline];
    [compute setBuffer:out offset:0 atIndex:0];
    [compute setBuffer:scene.a offset:0 atIndex:1];
    [compute setBytes:&b length:sizeof b atIndex:2];
    [compute dispatchThreads:(MTLSize){4, 1, 1} threadsPerThreadgroup:(MTLSize){4, 1, 1}];
    [compute endEncoding];
    [commands commit];
}

/* Two queues read one buffer at the same time, and write buffers of their own: no race. */
CASE(a_kernel_writes_what_its_image_says)
{
    struct scene scene = open_scene("add");
    id<MTLBuffer> outs[] = {[scene.device newBufferWithLength:64
                                                      options:MTLResourceStorageModeShared],
                            [scene.device newBufferWithLength:64
                                                      options:MTLResourceStorageModeShared]};
    submit_add(scene, outs[0]);
    submit_add(scene, outs[1]);
    CHECK(softmetal_wait_idle(10000));
    [scene.compute endEncoding];
    [outs[0] release];
    [outs[1] release];
    close_scene(scene);
}

RACES(two_queues_run_a_kernel_that_writes_one_buffer)
{
    struct scene scene = open_scene("add");
    submit_add(scene, scene.out);
    submit_add(scene, scene.out);
    CHECK(softmetal_wait_idle(10000));
    [scene.compute endEncoding];
    close_scene(scene);
}

/* ---- wrong use ---- */

REPORTS("dispatch", a_kernel_without_one_of_its_buffers)
{
    struct scene scene = open_scene("add");
    [scene.compute setBuffer:scene.a offset:0 atIndex:1];
    dispatch(&scene, 4);
    finish(&scene);
    close_scene(scene);
}

/* SOURCE github.com/antirez/ds4/issues/37: "Read-only bytes are being bound at index 2 to a shader
 * argument with write access enabled". */
REPORTS("set-bytes", bytes_where_the_kernel_writes)
{
    struct scene scene = open_scene("add");
    float out[4] = {0};
    [scene.compute setBytes:out length:sizeof out atIndex:0];
    [scene.compute setBuffer:scene.a offset:0 atIndex:1];
    [scene.compute setBuffer:scene.a offset:0 atIndex:2];
    dispatch(&scene, 4);
    finish(&scene);
    close_scene(scene);
}

REPORTS("dispatch", a_kernel_without_its_threadgroup_memory)
{
    struct scene scene = open_scene("room");
    dispatch(&scene, 4);
    finish(&scene);
    close_scene(scene);
}

REPORTS("dispatch", an_offset_that_the_parameters_type_does_not_take)
{
    struct scene scene = open_scene("add");
    [scene.compute setBuffer:scene.a offset:4 atIndex:1];
    [scene.compute setBytes:"\0\0\0\0" length:4 atIndex:2];
    dispatch(&scene, 4);
    finish(&scene);
    close_scene(scene);
}

REPORTS("dispatch", more_threadgroup_memory_than_there_is_beside_the_kernels_own)
{
    struct scene scene = open_scene("room");
    [scene.compute setThreadgroupMemoryLength:16400 atIndex:3];
    dispatch(&scene, 4);
    finish(&scene);
    close_scene(scene);
}

REPORTS("argument", threadgroup_memory_that_is_no_multiple_of_16)
{
    struct scene scene = open_scene("room");
    [scene.compute setThreadgroupMemoryLength:20 atIndex:3];
    dispatch(&scene, 4);
    finish(&scene);
    close_scene(scene);
}

REPORTS("argument", threadgroup_memory_over_the_devices_limit)
{
    struct scene scene = open_scene("room");
    [scene.compute setThreadgroupMemoryLength:32784 atIndex:3];
    finish(&scene);
    close_scene(scene);
}
