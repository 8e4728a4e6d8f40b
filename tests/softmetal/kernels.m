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
    id<MTLDevice> device;
    id<MTLLibrary> library;
    id<MTLComputePipelineState> pipeline;
    id<MTLBuffer> out, a;
    id<MTLCommandQueue> queue;
    id<MTLCommandBuffer> commands;
    id<MTLComputeCommandEncoder> compute;
};

static id<MTLComputePipelineState>
make_pipeline(id<MTLDevice> device, id<MTLLibrary> library)
{
    NSError *error = nil;
    id<MTLFunction> function =
        [library newFunctionWithName:[NSString stringWithUTF8String:"add"]];
    CHECK(function != nil && [function device] == device);
    CHECK(strcmp([[function name] UTF8String], "add") == 0);
    id<MTLComputePipelineState> pipeline = [device newComputePipelineStateWithFunction:function
                                                                                 error:&error];
    [function release];
    return pipeline;
}

static struct scene
open_scene(void)
{
    struct scene scene = {.device = open_device()};
    CHECK(softmetal_register_kernel("add", add, 1) == 0);
    scene.library = [scene.device newLibraryWithSource:[NSString stringWithUTF8String:text]
                                               options:nil
                                                 error:NULL];
    scene.pipeline = make_pipeline(scene.device, scene.library);
    scene.a = [scene.device newBufferWithLength:64 options:MTLResourceStorageModeShared];
    scene.out = [scene.device newBufferWithLength:64 options:MTLResourceStorageModeShared];
    for (int i = 0; i < 16; i++) {
        ((int *)[scene.a contents])[i] = i;
    }
    scene.queue = [scene.device newCommandQueue];
    scene.commands = [scene.queue commandBuffer];
    scene.compute = [scene.commands computeCommandEncoder];
    return scene;
}

static void
bind(struct scene scene, int b)
{
    [scene.compute setComputePipelineState:scene.pipeline];
    [scene.compute setBuffer:scene.out offset:0 atIndex:0];
    [scene.compute setBuffer:scene.a offset:0 atIndex:1];
    [scene.compute setBytes:&b length:sizeof b atIndex:2];
}

static void
close_scene(struct scene scene)
{
    [scene.compute endEncoding];
    [scene.commands commit];
    [scene.commands waitUntilCompleted];
    CHECK([scene.commands status] == MTLCommandBufferStatusCompleted);
    [scene.queue release];
    [scene.out release];
    [scene.a release];
    [scene.pipeline release];
    [scene.library release];
}

CASE(a_kernel_runs_with_what_was_bound_when_it_was_dispatched)
{
    struct scene scene = open_scene();
    int *out = [scene.out contents];
    CHECK([scene.pipeline maxTotalThreadsPerThreadgroup] >= 32);
    CHECK([scene.pipeline maxTotalThreadsPerThreadgroup] %
              [scene.pipeline threadExecutionWidth] ==
          0);
    bind(scene, 100);
    [scene.compute dispatchThreads:(MTLSize){2, 2, 2} threadsPerThreadgroup:(MTLSize){2, 2, 2}];
    int later = 1000;
    [scene.compute setBytes:&later length:sizeof later atIndex:2];
    [scene.compute setBuffer:scene.out offset:32 atIndex:0];
    [scene.compute dispatchThreads:(MTLSize){8, 1, 1} threadsPerThreadgroup:(MTLSize){3, 1, 1}];
    later = 5;
    id<MTLBuffer> kept = [scene.out retain];
    close_scene(scene);
    for (int i = 0; i < 8; i++) {
        CHECK(out[i] == i + 100);
        CHECK(out[8 + i] == i + 1000);
    }
    [kept release];
}

CASE(kernels_of_one_queue_wait_for_each_other)
{
    struct scene scene = open_scene();
    id<MTLBuffer> kept = [scene.out retain];
    int *out = [kept contents];
    bind(scene, 100);
    [scene.compute dispatchThreads:(MTLSize){16, 1, 1}
             threadsPerThreadgroup:(MTLSize){16, 1, 1}];
    [scene.compute setBuffer:scene.out offset:0 atIndex:1];
    [scene.compute dispatchThreads:(MTLSize){16, 1, 1}
             threadsPerThreadgroup:(MTLSize){16, 1, 1}];
    close_scene(scene);
    for (int i = 0; i < 16; i++) {
        CHECK(out[i] == i + 200);
    }
    [kept release];
}

CASE(a_function_needs_its_name_in_the_text_and_a_kernel)
{
    struct scene scene = open_scene();
    CHECK([scene.library newFunctionWithName:[NSString stringWithUTF8String:"unknown"]] == nil);
    CHECK(softmetal_register_kernel("absent", add, 1) == 0);
    CHECK([scene.library newFunctionWithName:[NSString stringWithUTF8String:"absent"]] == nil);
    close_scene(scene);
}

CASE(a_library_that_does_not_compile_is_nil_with_an_error)
{
    id<MTLDevice> device = open_device();
    NSError *error = nil;
    CHECK(softmetal_set("SOFTMETAL_FAIL", "library,pipeline") == 0);
    NSString *source = [NSString stringWithUTF8String:text];
    CHECK([device newLibraryWithSource:source options:nil error:&error] == nil);
    CHECK([error domain] == MTLLibraryErrorDomain);
    CHECK([error code] == MTLLibraryErrorCompileFailure);
    CHECK(softmetal_register_kernel("add", add, 1) == 0);
    id<MTLLibrary> library = [[device newLibraryWithSource:source options:nil
                                                     error:&error] autorelease];
    CHECK(make_pipeline(device, library) == nil);
}

REPORTS("dispatch", a_dispatch_without_a_pipeline)
{
    struct scene scene = open_scene();
    [scene.compute dispatchThreads:(MTLSize){1, 1, 1} threadsPerThreadgroup:(MTLSize){1, 1, 1}];
    close_scene(scene);
}

REPORTS("dispatch", a_dispatch_of_no_threads)
{
    struct scene scene = open_scene();
    bind(scene, 1);
    [scene.compute dispatchThreads:(MTLSize){1, 0, 1} threadsPerThreadgroup:(MTLSize){1, 1, 1}];
    close_scene(scene);
}

REPORTS("dispatch", a_threadgroup_larger_than_the_pipeline_takes)
{
    struct scene scene = open_scene();
    bind(scene, 1);
    [scene.compute dispatchThreads:(MTLSize){4, 4, 1}
             threadsPerThreadgroup:(MTLSize){1025, 1, 1}];
    close_scene(scene);
}

REPORTS("dispatch", more_threads_than_a_kernel_can_count)
{
    struct scene scene = open_scene();
    bind(scene, 1);
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
    struct scene scene = open_scene();
    bind(scene, 1);
    [scene.compute endEncoding];
    [scene.compute dispatchThreads:(MTLSize){1, 1, 1} threadsPerThreadgroup:(MTLSize){1, 1, 1}];
    scene.compute = nil;
    close_scene(scene);
}
