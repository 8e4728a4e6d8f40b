/* textures_bound.m: what a kernel has of the textures and samplers that are set. */
#import "texture_scene.h"

#include <stdint.h>

#include "softmetal/compiler.h"

/* ---- a kernel ---- */

static soft_functions *
open_text(const char *source, unsigned language, soft_compile_error *error)
{
    (void)source, (void)language, (void)error;
    soft_functions *functions = soft_functions_new();
    CHECK(soft_functions_add(functions, "texture", 3));
    return functions;
}

static char *
compile_text(const char *source, unsigned language, const char *function,
             const soft_constant_value *values, size_t count, bool is_counting,
             soft_compile_error *error)
{
    (void)source, (void)language, (void)values, (void)count, (void)is_counting, (void)error;
    char *path = malloc(IMAGE_PATH_SIZE);
    CHECK(path != NULL);
    find_image(function, path);
    return path;
}

static const softmetal_compiler compiler = {.open = open_text, .compile = compile_text};

typedef struct scene {
    id<MTLComputePipelineState> pipeline;
    MTLComputePipelineReflection *reflection;
    id<MTLBuffer> out, pixels;
    id<MTLTexture> image;
    id<MTLSamplerState> sampler;
    id<MTLCommandBuffer> commands;
    id<MTLComputeCommandEncoder> compute;
} scene;

static void
encode(scene *scene, id<MTLCommandBuffer> commands)
{
    scene->commands = commands;
    scene->compute = [commands computeCommandEncoder];
    [scene->compute setComputePipelineState:scene->pipeline];
    [scene->compute setBuffer:scene->out offset:0 atIndex:0];
    [scene->compute setTexture:scene->image atIndex:3];
    [scene->compute setTexture:scene->image atIndex:5];
    [scene->compute setTexture:scene->image atIndex:6];
    [scene->compute setSamplerState:scene->sampler atIndex:2];
}

static scene
open_scene(void)
{
    scene scene = {.out = make_buffer(64, 0), .pixels = counted_buffer(128)};
    id<MTLDevice> device = open_device();
    softmetal_set_compiler(&compiler);
    id<MTLLibrary> library = [[device newLibraryWithSource:text_of("kernel void ...")
                                                   options:nil
                                                     error:NULL] autorelease];
    id<MTLFunction> function = [[library newFunctionWithName:text_of("texture")] autorelease];
    scene.pipeline = [[device newComputePipelineStateWithFunction:function
                                                          options:MTLPipelineOptionBindingInfo
                                                       reflection:&scene.reflection
                                                            error:NULL] autorelease];
    CHECK(scene.pipeline != nil);
    scene.image = make_linear(scene.pixels, 3);
    scene.sampler = [[device newSamplerStateWithDescriptor:[[[MTLSamplerDescriptor alloc] init]
                                                               autorelease]] autorelease];
    encode(&scene, [open_queue() commandBuffer]);
    return scene;
}

static void
run(scene scene)
{
    dispatch(scene.compute, 1);
    [scene.compute endEncoding];
    finish(scene.commands);
}

CASE(reflection_tells_of_textures_and_samplers)
{
    scene scene = open_scene();
    NSArray *bindings = [scene.reflection bindings];
    CHECK([bindings count] == 4);
    id<MTLTextureBinding> both = [bindings objectAtIndex:1], image = [bindings objectAtIndex:2];
    CHECK([both type] == MTLBindingTypeTexture && [both arrayLength] == 2);
    CHECK([both access] == MTLBindingAccessReadOnly && [both index] == 5);
    CHECK([image access] == MTLBindingAccessReadWrite && [image arrayLength] == 0);
    CHECK([image textureType] == MTLTextureType2D && ![image isDepthTexture]);
    CHECK([image textureDataType] == MTLDataTypeUInt);
    CHECK([(id<MTLBinding>)[bindings objectAtIndex:0] type] == MTLBindingTypeSampler);
    run(scene);
}

CASE(a_kernel_has_what_was_set)
{
    scene scene = open_scene();
    run(scene);
    CHECK([scene.commands status] == MTLCommandBufferStatusCompleted);
    const uint64_t *out = [scene.out contents];
    const unsigned char *pixels = [scene.pixels contents];
    CHECK(out[0] == [scene.image gpuResourceID]._impl);
    CHECK(out[1] == [scene.sampler gpuResourceID]._impl);
    CHECK(out[2] == 3003); /* three textures, all among what is reached */
    CHECK(out[3] == 0x13121110);
    CHECK(pixels[16 + 64 + 4] == 16 + 64 + 4 + 7);
}

CASE(a_texture_lives_as_long_as_the_work_that_uses_it)
{
    scene scene = open_scene();
    id<MTLSharedEvent> event = open_event();
    [scene.compute endEncoding];
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    [commands encodeWaitForEvent:event value:1];
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    scene.image = make_linear(scene.pixels, 3);
    encode(&scene, commands);
    dispatch(scene.compute, 1);
    [scene.compute endEncoding];
    [pool drain];
    [commands commit];
    [event setSignaledValue:1];
    [commands waitUntilCompleted];
    CHECK(((unsigned char *)[scene.pixels contents])[84] == 84 + 7);
}

/* Each runs on a queue of its own. */
static void
submit(scene scene, id<MTLTexture> image)
{
    scene.out = make_buffer(64, 0);
    scene.image = image;
    encode(&scene, [open_queue() commandBuffer]);
    dispatch(scene.compute, 1);
    [scene.compute endEncoding];
    [scene.commands commit];
}

RACES(two_queues_write_one_texture)
{
    scene scene = open_scene();
    submit(scene, scene.image);
    submit(scene, scene.image);
    [scene.compute endEncoding];
}

CASE(two_queues_write_two_textures_over_one_buffer)
{
    scene scene = open_scene();
    id<MTLBuffer> pixels = counted_buffer(256);
    id<MTLTexture> halves[2];
    for (int i = 0; i < 2; i++) {
        halves[i] = [[pixels newTextureWithDescriptor:describe(MTLTextureType2D, RED, 4, 3)
                                               offset:(NSUInteger)i * 128
                                          bytesPerRow:32] autorelease];
        submit(scene, halves[i]);
    }
    [scene.compute endEncoding];
}

REPORTS("dispatch", a_kernel_without_one_of_its_textures)
{
    scene scene = open_scene();
    [scene.compute setTexture:nil atIndex:6];
    run(scene);
}

REPORTS("dispatch", a_kernel_without_its_sampler)
{
    scene scene = open_scene();
    [scene.compute setSamplerState:nil atIndex:2];
    run(scene);
}

static void
try_image(MTLTextureDescriptor *descriptor)
{
    scene scene = open_scene();
    [scene.compute setTexture:make_texture(descriptor) atIndex:3];
    run(scene);
}

REPORTS_BY("texture", a_texture_of_another_type,
           try_image(describe(MTLTextureType1D, RED, 4, 1)))
REPORTS_BY("texture", a_texture_of_floats_for_integers,
           try_image(describe(MTLTextureType2D, MTLPixelFormatR32Float, 4, 4)))
REPORTS_BY("texture", a_texture_that_is_read_and_written_in_a_format_that_is_not,
           try_image(describe(MTLTextureType2D, MTLPixelFormatRG32Uint, 4, 4)))
REPORTS_BY("texture", a_texture_to_be_read_that_is_written, {
    MTLTextureDescriptor *descriptor = describe(MTLTextureType2D, RED, 4, 4);
    [descriptor setUsage:MTLTextureUsageShaderRead];
    try_image(descriptor);
})
REPORTS_BY("argument", a_texture_at_an_index_that_there_is_not, {
    scene scene = open_scene();
    [scene.compute setTexture:scene.image atIndex:128];
    [scene.compute endEncoding];
})
REPORTS_BY("argument", a_sampler_at_an_index_that_there_is_not, {
    scene scene = open_scene();
    [scene.compute setSamplerState:scene.sampler atIndex:16];
    [scene.compute endEncoding];
})
