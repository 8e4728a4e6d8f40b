/* textures.m: textures over buffers and with bytes of their own, samplers, copies, and what a kernel has of them. */
#import "check.h"

#include <float.h>
#include <stdint.h>

#include "softmetal/compiler.h"
#include "softmetal/shim/softmetal_kernel.h"

#define PRIVATE MTLResourceStorageModePrivate
#define RED MTLPixelFormatR32Uint

/* ---- making ---- */

static MTLTextureDescriptor *
describe(MTLTextureType type, MTLPixelFormat format, NSUInteger width, NSUInteger height)
{
    MTLTextureDescriptor *descriptor = [[[MTLTextureDescriptor alloc] init] autorelease];
    [descriptor setTextureType:type];
    [descriptor setPixelFormat:format];
    [descriptor setWidth:width];
    [descriptor setHeight:height];
    [descriptor setUsage:MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite];
    return descriptor;
}

static id<MTLTexture>
make_texture(MTLTextureDescriptor *descriptor)
{
    return [[open_device() newTextureWithDescriptor:descriptor] autorelease];
}

/* 4 by `height` pixels of 32 bits in rows of 32 bytes, from byte 16 on. */
static id<MTLTexture>
make_linear(id<MTLBuffer> buffer, NSUInteger height)
{
    return [[buffer newTextureWithDescriptor:describe(MTLTextureType2D, RED, 4, height)
                                      offset:16
                                 bytesPerRow:32] autorelease];
}

static const soft_texture *
seen(id<MTLTexture> texture)
{
    return (const soft_texture *)(uintptr_t)[texture gpuResourceID]._impl;
}

CASE(a_linear_texture_lies_over_the_buffers_bytes)
{
    id<MTLBuffer> buffer = make_buffer(128, 0);
    id<MTLTexture> texture = make_linear(buffer, 3);
    CHECK([texture buffer] == buffer && [texture bufferOffset] == 16);
    CHECK([texture bufferBytesPerRow] == 32 && [texture pixelFormat] == RED);
    CHECK([texture width] == 4 && [texture height] == 3 && [texture depth] == 1);
    CHECK([texture textureType] == MTLTextureType2D && [texture arrayLength] == 1);
    CHECK([texture mipmapLevelCount] == 1 && [texture device] == [buffer device]);
    CHECK([texture storageMode] == MTLStorageModeShared);
    CHECK([texture usage] == (MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite));
    const soft_texture *as = seen(texture);
    CHECK((char *)as->pixels == (char *)[buffer contents] + 16 && as->nbytes == 80);
    CHECK(as->level[0].row_nbytes == 32 && as->level[0].offset == 0);
}

CASE(a_linear_texture_keeps_its_buffer)
{
    id<MTLDevice> device = open_device();
    id<MTLBuffer> buffer = [device newBufferWithLength:128 options:0];
    id<MTLTexture> texture =
        [buffer newTextureWithDescriptor:describe(MTLTextureType2D, RED, 4, 2)
                                  offset:0
                             bytesPerRow:16];
    NSUInteger before = [device currentAllocatedSize];
    CHECK([buffer retainCount] == 2);
    [buffer release];
    CHECK([device currentAllocatedSize] == before);
    seen(texture)->pixels[0] = 1;
    [texture release];
    CHECK([device currentAllocatedSize] == 0);
}

CASE(levels_and_slices_lie_one_behind_the_other)
{
    MTLTextureDescriptor *descriptor =
        describe(MTLTextureType2DArray, MTLPixelFormatRG8Unorm, 7, 4);
    [descriptor setArrayLength:3];
    [descriptor setMipmapLevelCount:3];
    [descriptor setStorageMode:MTLStorageModePrivate];
    id<MTLTexture> texture = make_texture(descriptor);
    const soft_texture *as = seen(texture);
    CHECK([texture buffer] == nil && [texture arrayLength] == 3 && as->slices == 3);
    CHECK([texture storageMode] == MTLStorageModePrivate && [texture bufferBytesPerRow] == 0);
    CHECK(as->level[0].row_nbytes == 14 && as->level[0].image_nbytes == 56);
    CHECK(as->level[1].offset == 168 && as->level[1].row_nbytes == 6);
    CHECK(as->level[1].image_nbytes == 12 && as->level[2].offset == 168 + 36);
    CHECK(as->level[2].row_nbytes == 2 && as->nbytes == 168 + 36 + 6);
}

CASE(a_cube_has_six_slices_and_one_in_its_array)
{
    MTLTextureDescriptor *descriptor =
        describe(MTLTextureTypeCubeArray, MTLPixelFormatR8Uint, 4, 4);
    [descriptor setArrayLength:2];
    id<MTLTexture> texture = make_texture(descriptor);
    CHECK([texture arrayLength] == 2 && seen(texture)->slices == 12);
    CHECK(seen(texture)->nbytes == 12 * 16);
}

CASE(a_descriptor_begins_with_one_pixel_to_be_read)
{
    MTLTextureDescriptor *descriptor = [[[MTLTextureDescriptor alloc] init] autorelease];
    CHECK([descriptor textureType] == MTLTextureType2D && [descriptor width] == 1);
    CHECK([descriptor pixelFormat] == MTLPixelFormatRGBA8Unorm && [descriptor height] == 1);
    CHECK([descriptor usage] == MTLTextureUsageShaderRead && [descriptor depth] == 1);
    CHECK([descriptor mipmapLevelCount] == 1 && [descriptor arrayLength] == 1);
    CHECK([descriptor storageMode] == MTLStorageModeShared);
}

/* ---- samplers ---- */

static uint64_t
packed(MTLSamplerDescriptor *descriptor)
{
    id<MTLSamplerState> sampler =
        [[open_device() newSamplerStateWithDescriptor:descriptor] autorelease];
    CHECK([sampler device] == open_device());
    return [sampler gpuResourceID]._impl;
}

CASE(a_sampler_is_its_number)
{
    MTLSamplerDescriptor *descriptor = [[[MTLSamplerDescriptor alloc] init] autorelease];
    CHECK([descriptor lodMaxClamp] == FLT_MAX && [descriptor normalizedCoordinates]);
    CHECK(packed(descriptor) == SOFT_SAMPLER(0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 65535));
    [descriptor setMinFilter:MTLSamplerMinMagFilterLinear];
    [descriptor setMipFilter:MTLSamplerMipFilterLinear];
    [descriptor setSAddressMode:MTLSamplerAddressModeMirrorRepeat];
    [descriptor setTAddressMode:MTLSamplerAddressModeClampToBorderColor];
    [descriptor setRAddressMode:MTLSamplerAddressModeRepeat];
    [descriptor setCompareFunction:MTLCompareFunctionGreaterEqual];
    [descriptor setBorderColor:MTLSamplerBorderColorOpaqueWhite];
    [descriptor setMaxAnisotropy:16];
    [descriptor setLodMinClamp:0.5f];
    [descriptor setLodMaxClamp:2];
    CHECK(packed(descriptor) ==
          SOFT_SAMPLER(1, 0, 2, 3, 5, 2, 0, 6, 2, 16, 2048, 2 * 4096));
    [descriptor setMagFilter:MTLSamplerMinMagFilterLinear];
    CHECK((packed(descriptor) & 3) == 3);
}

/* ---- copies ---- */

typedef struct part {
    MTLSize size;
    NSUInteger slice, level;
    MTLOrigin at;
    NSUInteger offset, row, image; /* of the buffer */
} part;

static void
put(id<MTLBlitCommandEncoder> blit, id<MTLBuffer> from, id<MTLTexture> to, part part)
{
    [blit copyFromBuffer:from
               sourceOffset:part.offset
          sourceBytesPerRow:part.row
        sourceBytesPerImage:part.image
                 sourceSize:part.size
                  toTexture:to
           destinationSlice:part.slice
           destinationLevel:part.level
          destinationOrigin:part.at];
}

static void
get(id<MTLBlitCommandEncoder> blit, id<MTLTexture> from, id<MTLBuffer> to, part part)
{
    [blit copyFromTexture:from
                     sourceSlice:part.slice
                     sourceLevel:part.level
                    sourceOrigin:part.at
                      sourceSize:part.size
                        toBuffer:to
               destinationOffset:part.offset
          destinationBytesPerRow:part.row
        destinationBytesPerImage:part.image];
}

static id<MTLBuffer>
counted_buffer(NSUInteger nbytes)
{
    id<MTLBuffer> buffer = make_buffer(nbytes, 0);
    for (NSUInteger i = 0; i < nbytes; i++) {
        ((unsigned char *)[buffer contents])[i] = (unsigned char)i;
    }
    return buffer;
}

static void
move(id<MTLBuffer> from, id<MTLTexture> texture, part in, id<MTLBuffer> to, part out)
{
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
    put(blit, from, texture, in);
    get(blit, texture, to, out);
    [blit endEncoding];
    finish(commands);
    CHECK([commands status] == MTLCommandBufferStatusCompleted);
}

/* Each pixel, against its place computed one by one. */
CASE(a_box_of_pixels_comes_and_goes_with_steps_of_its_own)
{
    MTLTextureDescriptor *descriptor = describe(MTLTextureType3D, MTLPixelFormatRG8Uint, 5, 4);
    [descriptor setDepth:3];
    [descriptor setStorageMode:MTLStorageModePrivate];
    id<MTLTexture> texture = make_texture(descriptor);
    id<MTLBuffer> from = counted_buffer(256), to = make_buffer(256, 0);
    part in = {{5, 4, 3}, 0, 0, {0, 0, 0}, 6, 14, 60};
    part out = {{2, 3, 2}, 0, 0, {1, 1, 1}, 4, 8, 32};
    move(from, texture, in, to, out);
    const unsigned char *source = [from contents], *got = [to contents];
    for (int i = 0; i < 256; i++) {
        int at = i - 4, z = at / 32, y = at % 32 / 8, x = at % 8;
        int isInside = at >= 0 && z < 2 && y < 3 && x < 4;
        int place = 6 + (z + 1) * 60 + (y + 1) * 14 + 2 + x;
        CHECK(got[i] == (isInside ? source[place] : 0));
    }
}

CASE(slices_and_levels_are_reached_by_their_numbers)
{
    MTLTextureDescriptor *descriptor =
        describe(MTLTextureType2DArray, MTLPixelFormatR32Uint, 4, 4);
    [descriptor setArrayLength:2];
    [descriptor setMipmapLevelCount:2];
    id<MTLTexture> texture = make_texture(descriptor);
    id<MTLBuffer> from = counted_buffer(64), to = make_buffer(64, 0);
    part half = {{2, 2, 1}, 1, 1, {0, 0, 0}, 0, 8, 0};
    move(from, texture, half, to, half);
    CHECK(memcmp([from contents], [to contents], 16) == 0);
    const soft_texture *as = seen(texture);
    CHECK(as->pixels[as->level[1].offset + as->level[1].image_nbytes] == 0);
    CHECK(as->pixels[as->level[1].offset + as->level[1].image_nbytes + 1] == 1);
}

/* ---- wrong use ---- */

static void
try_copy(part part)
{
    id<MTLTexture> texture = make_texture(describe(MTLTextureType2D, RED, 4, 4));
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
    put(blit, make_buffer(64, 0), texture, part);
    [blit endEncoding];
    finish(commands);
}

REPORTS_BY("blit-range", a_box_that_passes_the_texture,
           try_copy((part){{4, 4, 1}, 0, 0, {1, 0, 0}, 0, 16, 0}))
REPORTS_BY("blit-range", a_slice_that_the_texture_has_not,
           try_copy((part){{4, 4, 1}, 1, 0, {0, 0, 0}, 0, 16, 0}))
REPORTS_BY("blit-range", a_box_that_passes_the_buffer,
           try_copy((part){{4, 4, 1}, 0, 0, {0, 0, 0}, 4, 16, 0}))
REPORTS_BY("blit-range", a_box_with_rows_too_short,
           try_copy((part){{4, 4, 1}, 0, 0, {0, 0, 0}, 0, 12, 0}))
REPORTS_BY("blit-range", an_empty_box, try_copy((part){{4, 0, 1}, 0, 0, {0, 0, 0}, 0, 16, 0}))
REPORTS_BY("blit-alignment", a_box_whose_rows_are_no_pixels,
           try_copy((part){{2, 2, 1}, 0, 0, {0, 0, 0}, 0, 10, 0}))

static void
try_linear(MTLTextureDescriptor *descriptor, NSUInteger offset, NSUInteger row)
{
    id<MTLBuffer> buffer = make_buffer(128, 0);
    CHECK([buffer newTextureWithDescriptor:descriptor offset:offset bytesPerRow:row] == nil);
}

REPORTS_BY("texture", a_linear_texture_from_an_unaligned_byte,
           try_linear(describe(MTLTextureType2D, RED, 4, 2), 8, 16))
REPORTS_BY("texture", a_linear_texture_with_unaligned_rows,
           try_linear(describe(MTLTextureType2D, RED, 4, 2), 0, 24))
REPORTS_BY("texture", a_linear_texture_with_rows_too_short,
           try_linear(describe(MTLTextureType2D, RED, 8, 2), 0, 16))
REPORTS_BY("texture", a_linear_texture_that_passes_the_buffer,
           try_linear(describe(MTLTextureType2D, RED, 4, 9), 0, 16))
REPORTS_BY("texture", a_linear_texture_in_three_dimensions,
           try_linear(describe(MTLTextureType3D, RED, 4, 2), 0, 16))
REPORTS_BY("texture", a_linear_texture_of_levels, {
    MTLTextureDescriptor *descriptor = describe(MTLTextureType2D, RED, 4, 2);
    [descriptor setMipmapLevelCount:2];
    try_linear(descriptor, 0, 16);
})
REPORTS_BY("texture", a_linear_texture_of_another_storage_mode, {
    MTLTextureDescriptor *descriptor = describe(MTLTextureType2D, RED, 4, 2);
    [descriptor setStorageMode:MTLStorageModePrivate];
    try_linear(descriptor, 0, 16);
})
REPORTS_BY("texture", a_linear_texture_of_depths, {
    MTLTextureDescriptor *descriptor =
        describe(MTLTextureType2D, MTLPixelFormatDepth32Float, 4, 2);
    [descriptor setUsage:MTLTextureUsageShaderRead];
    try_linear(descriptor, 0, 16);
})
REPORTS_BY("texture", a_texture_of_depths_that_is_written,
           CHECK(make_texture(describe(MTLTextureType2D, MTLPixelFormatDepth32Float, 4, 2)) ==
                 nil))
REPORTS_BY("texture", a_texture_wider_than_metal_takes,
           CHECK(make_texture(describe(MTLTextureType2D, RED, 16385, 2)) == nil))
REPORTS_BY("texture", a_cube_that_is_no_square,
           CHECK(make_texture(describe(MTLTextureTypeCube, RED, 4, 2)) == nil))
REPORTS_BY("texture", the_alignment_of_depths,
           [open_device() minimumLinearTextureAlignmentForPixelFormat:MTLPixelFormatDepth16Unorm])
REPORTS_BY("argument", a_texture_of_nothing, CHECK(make_texture(nil) == nil))
REPORTS("texture", a_sampler_of_pixels_that_repeats)
{
    MTLSamplerDescriptor *descriptor = [[[MTLSamplerDescriptor alloc] init] autorelease];
    [descriptor setNormalizedCoordinates:NO];
    [descriptor setSAddressMode:MTLSamplerAddressModeRepeat];
    CHECK([open_device() newSamplerStateWithDescriptor:descriptor] == nil);
}

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
    scene.pipeline =
        [[device newComputePipelineStateWithFunction:function
                                             options:MTLPipelineOptionBindingInfo
                                          reflection:&scene.reflection
                                               error:NULL] autorelease];
    CHECK(scene.pipeline != nil);
    scene.image = make_linear(scene.pixels, 3);
    scene.sampler = [[device
        newSamplerStateWithDescriptor:[[[MTLSamplerDescriptor alloc] init] autorelease]]
        autorelease];
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
