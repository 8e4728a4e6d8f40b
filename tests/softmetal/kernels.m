/* kernels.m: libraries, functions, pipelines, and what a compute encoder runs. */
#import "check.h"

static const char text[] = "kernel void add(...); kernel void unknown(...);";

/* out[i] = a[i] + b */
static void
add(void *const *arguments, const size_t grid[3])
{
    int *out = arguments[0];
    const int *a = arguments[1], *b = arguments[2];
    for (size_t i = 0; i < grid[0] * grid[1] * grid[2]; i++) {
        out[i] = a[i] + *b;
    }
}

struct scene {
    id<MTLLibrary> library;
    id<MTLComputePipelineState> pipeline;
    id<MTLBuffer> out, a;
    id<MTLCommandBuffer> commands;
    id<MTLComputeCommandEncoder> compute;
};

static id<MTLComputePipelineState>
make_pipeline(id<MTLLibrary> library)
{
    NSError *error = nil;
    id<MTLFunction> function = [[library newFunctionWithName:text_of("add")] autorelease];
    CHECK(function != nil && [function device] == open_device());
    CHECK(strcmp([[function name] UTF8String], "add") == 0);
    return [[open_device() newComputePipelineStateWithFunction:function
                                                         error:&error] autorelease];
}

static struct scene
open_scene(void)
{
    struct scene scene = {.a = make_buffer(64, 0), .out = make_buffer(64, 0)};
    CHECK(softmetal_register_kernel("add", add, 1) == 0);
    scene.library = [[open_device() newLibraryWithSource:text_of(text) options:nil
                                                   error:NULL] autorelease];
    scene.pipeline = make_pipeline(scene.library);
    for (int i = 0; i < 16; i++) {
        ((int *)[scene.a contents])[i] = i;
    }
    scene.commands = [open_queue() commandBuffer];
    scene.compute = [scene.commands computeCommandEncoder];
    return scene;
}

static struct scene
open_bound(int b)
{
    struct scene scene = open_scene();
    [scene.compute setComputePipelineState:scene.pipeline];
    [scene.compute setBuffer:scene.out offset:0 atIndex:0];
    [scene.compute setBuffer:scene.a offset:0 atIndex:1];
    [scene.compute setBytes:&b length:sizeof b atIndex:2];
    return scene;
}

static void
close_scene(struct scene scene)
{
    [scene.compute endEncoding];
    finish(scene.commands);
    CHECK([scene.commands status] == MTLCommandBufferStatusCompleted);
}

CASE(a_kernel_runs_with_what_was_bound_when_it_was_dispatched)
{
    struct scene scene = open_bound(100);
    int *out = [scene.out contents];
    CHECK([scene.pipeline maxTotalThreadsPerThreadgroup] >= 32);
    CHECK([scene.pipeline maxTotalThreadsPerThreadgroup] %
              [scene.pipeline threadExecutionWidth] ==
          0);
    [scene.compute dispatchThreads:(MTLSize){2, 2, 2} threadsPerThreadgroup:(MTLSize){2, 2, 2}];
    int later = 1000;
    [scene.compute setBytes:&later length:sizeof later atIndex:2];
    [scene.compute setBuffer:scene.out offset:32 atIndex:0];
    [scene.compute dispatchThreads:(MTLSize){8, 1, 1} threadsPerThreadgroup:(MTLSize){3, 1, 1}];
    later = 5;
    close_scene(scene);
    for (int i = 0; i < 8; i++) {
        CHECK(out[i] == i + 100);
        CHECK(out[8 + i] == i + 1000);
    }
}

CASE(kernels_of_one_queue_wait_for_each_other)
{
    struct scene scene = open_bound(100);
    int *out = [scene.out contents];
    dispatch(scene.compute, 16);
    [scene.compute setBuffer:scene.out offset:0 atIndex:1];
    dispatch(scene.compute, 16);
    close_scene(scene);
    for (int i = 0; i < 16; i++) {
        CHECK(out[i] == i + 200);
    }
}

CASE(a_function_needs_its_name_in_the_text_and_a_kernel)
{
    struct scene scene = open_scene();
    CHECK([scene.library newFunctionWithName:text_of("unknown")] == nil);
    CHECK(softmetal_register_kernel("absent", add, 1) == 0);
    CHECK([scene.library newFunctionWithName:text_of("absent")] == nil);
    close_scene(scene);
}

CASE(a_library_that_does_not_compile_is_nil_with_an_error)
{
    id<MTLDevice> device = open_device();
    NSError *error = nil;
    CHECK(softmetal_set("SOFTMETAL_FAIL", "library,pipeline") == 0);
    NSString *source = text_of(text);
    CHECK([device newLibraryWithSource:source options:nil error:&error] == nil);
    CHECK([error domain] == MTLLibraryErrorDomain);
    CHECK([error code] == MTLLibraryErrorCompileFailure);
    CHECK(softmetal_register_kernel("add", add, 1) == 0);
    id<MTLLibrary> library = [[device newLibraryWithSource:source options:nil
                                                     error:&error] autorelease];
    CHECK(make_pipeline(library) == nil);
}

REPORTS("dispatch", a_dispatch_without_a_pipeline)
{
    struct scene scene = open_scene();
    dispatch(scene.compute, 1);
    close_scene(scene);
}

REPORTS("dispatch", a_dispatch_of_no_threads)
{
    struct scene scene = open_bound(1);
    [scene.compute dispatchThreads:(MTLSize){1, 0, 1} threadsPerThreadgroup:(MTLSize){1, 1, 1}];
    close_scene(scene);
}

REPORTS("dispatch", a_threadgroup_larger_than_the_pipeline_takes)
{
    struct scene scene = open_bound(1);
    [scene.compute dispatchThreads:(MTLSize){4, 4, 1}
             threadsPerThreadgroup:(MTLSize){1025, 1, 1}];
    close_scene(scene);
}

REPORTS("dispatch", more_threads_than_a_kernel_can_count)
{
    struct scene scene = open_bound(1);
    [scene.compute dispatchThreadgroups:(MTLSize){1, 1ul << 31, 1}
                  threadsPerThreadgroup:(MTLSize){1, 2, 1}];
    close_scene(scene);
}

REPORTS("argument", a_buffer_bound_past_its_end)
{
    struct scene scene = open_scene();
    [scene.compute setBuffer:scene.out offset:64 atIndex:0];
    close_scene(scene);
}

REPORTS("encoder-state", a_dispatch_after_end_encoding)
{
    struct scene scene = open_bound(1);
    [scene.compute endEncoding];
    dispatch(scene.compute, 1);
    scene.compute = nil;
    close_scene(scene);
}
