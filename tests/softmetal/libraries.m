/* libraries.m: what a compiler makes of a text, and the kernels that it gives.
 *
 * The compiler knows the same kernels whatever the text: some of images/, compiled beforehand.
 */
#import "check.h"

#include <stdint.h>

#include "softmetal/compiler.h"

/* ---- a compiler ---- */

static int opened, compiled;
static unsigned last_language;

static soft_functions *
open_text(const char *source, unsigned language, soft_compile_error *error)
{
    opened++;
    last_language = language;
    if (strstr(source, "wrong") != NULL || strstr(source, "Ctrl-C") != NULL) {
        bool is_interrupt = strstr(source, "Ctrl-C") != NULL;
        *error =
            (soft_compile_error){is_interrupt ? 2 : 3,
                                 is_interrupt ? NULL : strdup("program_source:1:1: wrong")};
        return NULL;
    }
    soft_functions *functions = soft_functions_new();
    CHECK(soft_functions_add(functions, "room", 3) && soft_functions_add(functions, "add", 3));
    CHECK(soft_functions_add_constant(functions, "by", "float3", 7, true));
    CHECK(soft_functions_add_constant(functions, "is_long", "bool", 2, false));
    CHECK(!soft_functions_add_constant(functions, "odd", "float5", 3, false));
    CHECK(soft_functions_add(functions, "vast", 3));
    CHECK(soft_functions_add(functions, "no_image", 3));
    CHECK(soft_functions_add(functions, "too_much_memory", 3));
    CHECK(soft_functions_add(functions, "called", MTLFunctionTypeVisible));
    return functions;
}

static char *
compile_text(const char *source, unsigned language, const char *function,
             const soft_constant_value *values, size_t count, bool is_counting,
             soft_compile_error *error)
{
    compiled++;
    (void)source, (void)is_counting, (void)error;
    CHECK(language == last_language);
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

static id<MTLLibrary>
open_library(void)
{
    softmetal_set_compiler(&compiler);
    NSError *error = nil;
    id<MTLLibrary> library = [open_device() newLibraryWithSource:text_of("kernel void ...")
                                                         options:nil
                                                           error:&error];
    CHECK(library != nil && error == nil);
    return [library autorelease];
}

static id<MTLComputePipelineState>
make_pipeline(id<MTLLibrary> library, const char *name,
              MTLComputePipelineReflection **reflection, NSError **error)
{
    static const float by[4] = {1, 2, 3};
    MTLFunctionConstantValues *values = [[[MTLFunctionConstantValues alloc] init] autorelease];
    [values setConstantValue:"\0\0\0\0" type:MTLDataTypeFloat atIndex:7];
    [values setConstantValue:by type:MTLDataTypeFloat3 atIndex:7];
    id<MTLFunction> function = [[library newFunctionWithName:text_of(name)
                                              constantValues:values
                                                       error:error] autorelease];
    CHECK(function != nil);
    MTLComputePipelineDescriptor *descriptor =
        [[[MTLComputePipelineDescriptor alloc] init] autorelease];
    [descriptor setComputeFunction:function];
    [descriptor setLabel:text_of(name)];
    id<MTLComputePipelineState> pipeline =
        [[library device] newComputePipelineStateWithDescriptor:descriptor
                                                        options:MTLPipelineOptionBindingInfo
                                                     reflection:reflection
                                                          error:error];
    CHECK(pipeline == nil || [[pipeline label] isEqualToString:text_of(name)]);
    return pipeline;
}

/* ---- libraries and functions ---- */

CASE(a_library_names_its_functions_and_their_constants)
{
    id<MTLLibrary> library = open_library();
    CHECK([[library functionNames] count] == 6);
    CHECK([text_of("room") isEqual:[[library functionNames] objectAtIndex:0]]);
    id<MTLFunction> function = [[library newFunctionWithName:text_of("add")] autorelease];
    CHECK([function device] == [library device] && [[function name] isEqual:text_of("add")]);
    CHECK([function functionType] == MTLFunctionTypeKernel);
    id<MTLFunction> called = [[library newFunctionWithName:text_of("called")] autorelease];
    CHECK([called functionType] == MTLFunctionTypeVisible);
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
    id<MTLLibrary> library = [[device newLibraryWithSource:text_of("kernel void in_c(...)")
                                                   options:nil
                                                     error:NULL] autorelease];
    id<MTLFunction> function = [[library newFunctionWithName:text_of("in_c")] autorelease];
    CHECK(function != nil && opened == 0);
    CHECK([function functionType] == MTLFunctionTypeKernel);
    CHECK([library newFunctionWithName:text_of("add")] == nil);
    CHECK(softmetal_register_kernel("absent", NULL, 1) == 0);
    CHECK([library newFunctionWithName:text_of("absent")] == nil);
    library = open_library();
    CHECK([library newFunctionWithName:text_of("in_c")] == nil);
}

CASE(a_kernel_for_which_the_table_has_no_room_is_refused_and_not_found)
{
    static char names[300][16];
    int taken = 0;
    for (int i = 0; i < 300; i++) {
        snprintf(names[i], sizeof names[i], "k%d", i);
        taken += softmetal_register_kernel(names[i], NULL, 1) == 0;
    }
    CHECK(taken == 256);
    CHECK(softmetal_register_kernel("k255", NULL, 1) == 0);
    softmetal_set_compiler(&compiler);
    id<MTLLibrary> library =
        [[open_device() newLibraryWithSource:text_of("kernel void k299(...)")
                                     options:nil
                                       error:NULL] autorelease];
    CHECK([library newFunctionWithName:text_of("k299")] == nil);
}

CASE(the_options_choose_the_math)
{
    MTLCompileOptions *options = [[[MTLCompileOptions alloc] init] autorelease];
    CHECK([options fastMathEnabled] && [options mathMode] == MTLMathModeFast);
    CHECK([options mathFloatingPointFunctions] == MTLMathFloatingPointFunctionsFast);
    [options setMathMode:MTLMathModeSafe];
    CHECK(![options fastMathEnabled]);
    CHECK([options mathFloatingPointFunctions] == MTLMathFloatingPointFunctionsFast);
    [options setFastMathEnabled:YES];
    [options setFastMathEnabled:NO];
    CHECK([options mathMode] == MTLMathModeSafe);
    CHECK([options mathFloatingPointFunctions] == MTLMathFloatingPointFunctionsPrecise);
    [options setMathMode:MTLMathModeRelaxed];
    [options setMathFloatingPointFunctions:MTLMathFloatingPointFunctionsFast];
    CHECK([options mathMode] == MTLMathModeRelaxed && ![options fastMathEnabled]);
    CHECK([options mathFloatingPointFunctions] == MTLMathFloatingPointFunctionsFast);
}

CASE(the_options_choose_the_language)
{
    id<MTLDevice> device = open_device();
    MTLCompileOptions *options = [[[MTLCompileOptions alloc] init] autorelease];
    open_library();
    CHECK(last_language == MTLLanguageVersion3_0); /* as for a program of an old SDK */
    CHECK([options languageVersion] == MTLLanguageVersion3_0);
    [options setLanguageVersion:MTLLanguageVersion3_2];
    [[device newLibraryWithSource:text_of("") options:options error:NULL] release];
    CHECK(last_language == MTLLanguageVersion3_2);
}

CASE(the_system_decides_what_the_options_have)
{
    static const struct {
        const char *macos;
        NSInteger major;
    } systems[] = {{"14", 14}, {"15", 15}, {"26", 26}, {"27", 27}};
    MTLCompileOptions *options = [[[MTLCompileOptions alloc] init] autorelease];
    for (size_t i = 0; i < 4; i++) {
        CHECK(softmetal_set("SOFTMETAL_MACOS", systems[i].macos) == 0);
        NSOperatingSystemVersion version = [[NSProcessInfo processInfo] operatingSystemVersion];
        CHECK(version.majorVersion == systems[i].major && version.minorVersion == 0);
        BOOL is_there = systems[i].major >= 15;
        CHECK([options respondsToSelector:@selector(setMathMode:)] == is_there);
        CHECK([options respondsToSelector:@selector(setMathFloatingPointFunctions:)] ==
              is_there);
        CHECK([options respondsToSelector:@selector(setFastMathEnabled:)]);
    }
    CHECK(softmetal_set("SOFTMETAL_MACOS", "16") < 0);
}

CASE(a_function_constant_needs_a_value_of_its_type)
{
    id<MTLLibrary> library = open_library();
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
    id<MTLLibrary> library = open_library();
    MTLComputePipelineReflection *reflection = nil;
    id<MTLComputePipelineState> pipeline = make_pipeline(library, "room", &reflection, NULL);
    CHECK([pipeline staticThreadgroupMemoryLength] == 16384);
    CHECK([pipeline maxTotalThreadsPerThreadgroup] == 1024);
    CHECK(1024 % [pipeline threadExecutionWidth] == 0);
    CHECK([device maxThreadgroupMemoryLength] == 32768);
    [pipeline release]; /* the reflection needs it no more */
    CHECK([[reflection bindings] count] == 2);
    /* in another order than the signature's: no page promises one */
    id<MTLThreadgroupBinding> shared = [[reflection bindings] objectAtIndex:1];
    CHECK([shared type] == MTLBindingTypeThreadgroupMemory && [shared index] == 3);
    CHECK([shared threadgroupMemoryAlignment] == 4 && [shared threadgroupMemoryDataSize] == 4);
    id<MTLBufferBinding> out = [[reflection bindings] objectAtIndex:0];
    CHECK([[out name] isEqual:text_of("out")] && [out isUsed]);
    CHECK([out type] == MTLBindingTypeBuffer && [out access] == MTLBindingAccessReadWrite);
    CHECK([out bufferDataType] == MTLDataTypeUInt && [out bufferDataSize] == 4);
    CHECK([out bufferAlignment] == 4);
    pipeline = make_pipeline(library, "add", &reflection, NULL);
    out = [[reflection bindings] objectAtIndex:1];
    CHECK([out access] == MTLBindingAccessReadOnly);
    [pipeline release];
}

CASE(a_kernel_with_too_much_threadgroup_memory_has_no_pipeline)
{
    id<MTLLibrary> library = open_library();
    NSError *error = nil;
    CHECK(make_pipeline(library, "vast", NULL, &error) == nil);
    CHECK([[error localizedDescription]
        isEqual:text_of(
                    "Threadgroup memory size (40000) exceeds the maximum threadgroup memory "
                    "allowed (32768).")]);
}

CASE(an_image_that_cannot_be_loaded_has_no_pipeline)
{
    id<MTLLibrary> library = open_library();
    NSError *error = nil;
    CHECK(make_pipeline(library, "no_image", NULL, &error) == nil);
    CHECK([error code] == MTLLibraryErrorInternal);
    CHECK([[error localizedDescription] length] > 0);
}

CASE(a_library_keeps_the_compiler_that_opened_it)
{
    id<MTLLibrary> library = open_library();
    NSError *error = nil;
    softmetal_set_compiler(NULL);
    [make_pipeline(library, "room", NULL, &error) release];
    CHECK(error == nil && compiled == 1);
}

/* ---- running them ---- */

struct scene {
    id<MTLComputePipelineState> pipeline;
    id<MTLBuffer> out, a;
    id<MTLCommandQueue> queue;
    id<MTLCommandBuffer> commands;
    id<MTLComputeCommandEncoder> compute;
};

static void
encode(struct scene *scene, id<MTLCommandBuffer> commands)
{
    scene->commands = commands;
    scene->compute = [commands computeCommandEncoder];
    [scene->compute setComputePipelineState:scene->pipeline];
    [scene->compute setBuffer:scene->out offset:0 atIndex:0];
}

static struct scene
open_scene(const char *name)
{
    struct scene scene = {.out = make_buffer(64, 0),
                          .a = make_buffer(256, 0),
                          .queue = open_queue()};
    scene.pipeline = [make_pipeline(open_library(), name, NULL, NULL) autorelease];
    for (int i = 0; i < 64; i++) {
        ((int *)[scene.a contents])[i] = i;
    }
    encode(&scene, [scene.queue commandBuffer]);
    return scene;
}

static void
bind_a_and_b(struct scene scene, int b)
{
    [scene.compute setBuffer:scene.a offset:0 atIndex:1];
    [scene.compute setBytes:&b length:sizeof b atIndex:2];
}

/* add: out[i] = a[4 * i] + b, and a[i] = i. */
static struct scene
open_add(int b)
{
    struct scene scene = open_scene("add");
    bind_a_and_b(scene, b);
    return scene;
}

static void
run(struct scene scene)
{
    [scene.compute endEncoding];
    finish(scene.commands);
}

CASE(a_kernel_runs_with_what_was_bound_when_it_was_dispatched)
{
    struct scene scene = open_add(100);
    int later = 1000;
    const int *out = [scene.out contents];
    [scene.compute setBuffer:scene.a offset:16 atIndex:1];
    dispatch(scene.compute, 8);
    [scene.compute setBuffer:scene.out offset:32 atIndex:0];
    [scene.compute setBytes:&later length:sizeof later atIndex:2];
    [scene.compute dispatchThreads:(MTLSize){8, 1, 1} threadsPerThreadgroup:(MTLSize){3, 1, 1}];
    later = 5;
    run(scene);
    for (int i = 0; i < 8; i++) {
        CHECK(out[i] == 4 * (i + 1) + 100 && out[8 + i] == 4 * (i + 1) + 1000);
    }
}

CASE(kernels_of_one_queue_wait_for_each_other)
{
    struct scene scene = open_add(100);
    dispatch(scene.compute, 16);
    [scene.compute setBuffer:scene.out offset:0 atIndex:1];
    dispatch(scene.compute, 4);
    run(scene);
    for (int i = 0; i < 4; i++) {
        CHECK(((int *)[scene.out contents])[i] == 16 * i + 200);
    }
}

CASE(threadgroups_are_dispatched_whole)
{
    struct scene scene = open_scene("room");
    const uint32_t whole[] = {6, 4, 2, 3, 2, 1, 2, 2, 2, 48, 64};
    const uint32_t partial[] = {5, 1, 1, 3, 1, 1, 2, 1, 1, 48, 20};
    [scene.compute setThreadgroupMemoryLength:48 atIndex:3];
    [scene.compute dispatchThreadgroups:(MTLSize){3, 2, 1}
                  threadsPerThreadgroup:(MTLSize){2, 2, 2}];
    run(scene);
    CHECK(memcmp([scene.out contents], whole, sizeof whole) == 0);
    encode(&scene, [scene.queue commandBuffer]);
    [scene.compute setThreadgroupMemoryLength:48 atIndex:3];
    softmetal_note_view(scene.compute, 0, 0, 20);
    [scene.compute dispatchThreads:(MTLSize){5, 1, 1} threadsPerThreadgroup:(MTLSize){2, 1, 1}];
    run(scene);
    CHECK(memcmp([scene.out contents], partial, sizeof partial) == 0);
}

CASE(a_dispatch_outlives_its_pipeline)
{
    struct scene scene = open_scene("add");
    [scene.compute endEncoding];
    scene.pipeline = make_pipeline(open_library(), "add", NULL, NULL);
    encode(&scene, [scene.queue commandBufferWithUnretainedReferences]);
    bind_a_and_b(scene, 1);
    dispatch(scene.compute, 4);
    [scene.pipeline release];
    run(scene);
    CHECK(((const int *)[scene.out contents])[3] == 13);
}

CASE(a_kernel_that_is_stopped_fails_its_command_buffer_with_the_reason)
{
    struct scene scene = open_scene("too_much_memory");
    dispatch(scene.compute, 64);
    run(scene);
    CHECK([scene.commands status] == MTLCommandBufferStatusError);
    CHECK([[scene.commands error] domain] == MTLCommandBufferErrorDomain);
    CHECK([[scene.commands error] code] == MTLCommandBufferErrorInternal);
    CHECK(strstr([[[scene.commands error] localizedDescription] UTF8String], "32768") != NULL);
}

/* add, on a queue of its own. */
static void
submit_add(struct scene scene, id<MTLBuffer> out)
{
    scene.out = out;
    encode(&scene, [open_queue() commandBuffer]);
    bind_a_and_b(scene, 1);
    dispatch(scene.compute, 4);
    [scene.compute endEncoding];
    [scene.commands commit];
}

/* Two queues read one buffer at the same time, and write buffers of their own: no race. */
CASE(a_kernel_writes_what_its_image_says)
{
    struct scene scene = open_scene("add");
    submit_add(scene, make_buffer(64, 0));
    submit_add(scene, make_buffer(64, 0));
    [scene.compute endEncoding];
}

RACES(two_queues_run_a_kernel_that_writes_one_buffer)
{
    struct scene scene = open_scene("add");
    submit_add(scene, scene.out);
    submit_add(scene, scene.out);
    [scene.compute endEncoding];
}

/* ---- wrong use ---- */

REPORTS("dispatch", a_kernel_without_one_of_its_buffers)
{
    struct scene scene = open_scene("add");
    [scene.compute setBuffer:scene.a offset:0 atIndex:1];
    dispatch(scene.compute, 4);
    run(scene);
}

/* SOURCE github.com/antirez/ds4/issues/37: "Read-only bytes are being bound at index 2 to a shader
 * argument with write access enabled". */
REPORTS("set-bytes", bytes_where_the_kernel_writes)
{
    struct scene scene = open_add(0);
    float out[4] = {0};
    [scene.compute setBytes:out length:sizeof out atIndex:0];
    dispatch(scene.compute, 4);
    run(scene);
}

REPORTS("dispatch", an_offset_that_the_parameters_type_does_not_take)
{
    struct scene scene = open_add(0);
    [scene.compute setBuffer:scene.a offset:4 atIndex:1];
    dispatch(scene.compute, 4);
    run(scene);
}

/* room, with so many bytes of threadgroup memory. */
static void
dispatch_room(NSUInteger nbytes)
{
    struct scene scene = open_scene("room");
    if (nbytes > 0) {
        [scene.compute setThreadgroupMemoryLength:nbytes atIndex:3];
    }
    if (nbytes <= 32768) {
        dispatch(scene.compute, 4);
    }
    run(scene);
}

REPORTS_BY("dispatch", a_kernel_without_its_threadgroup_memory, dispatch_room(0))
REPORTS_BY("dispatch", more_threadgroup_memory_than_there_is_beside_the_kernels_own,
           dispatch_room(16400))
REPORTS_BY("argument", threadgroup_memory_that_is_no_multiple_of_16, dispatch_room(20))
REPORTS_BY("argument", threadgroup_memory_over_the_devices_limit, dispatch_room(32784))

REPORTS("dispatch", a_dispatch_without_a_pipeline)
{
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    id<MTLComputeCommandEncoder> compute = [commands computeCommandEncoder];
    dispatch(compute, 1);
    [compute endEncoding];
    finish(commands);
}

static void
dispatch_threads(MTLSize threads, MTLSize group)
{
    struct scene scene = open_add(1);
    [scene.compute dispatchThreads:threads threadsPerThreadgroup:group];
    run(scene);
}

REPORTS_BY("dispatch", a_dispatch_of_no_threads,
           dispatch_threads((MTLSize){1, 0, 1}, (MTLSize){1, 1, 1}))
REPORTS_BY("dispatch", a_threadgroup_larger_than_the_pipeline_takes,
           dispatch_threads((MTLSize){4, 4, 1}, (MTLSize){1025, 1, 1}))

REPORTS("dispatch", more_threads_than_a_kernel_can_count)
{
    struct scene scene = open_add(1);
    [scene.compute dispatchThreadgroups:(MTLSize){1, 1ul << 31, 1}
                  threadsPerThreadgroup:(MTLSize){1, 2, 1}];
    run(scene);
}

REPORTS("argument", a_buffer_bound_past_its_end)
{
    struct scene scene = open_scene("add");
    [scene.compute setBuffer:scene.out offset:64 atIndex:0];
    run(scene);
}

REPORTS("encoder-state", a_dispatch_after_end_encoding)
{
    struct scene scene = open_add(1);
    [scene.compute endEncoding];
    dispatch(scene.compute, 1);
    finish(scene.commands);
}
