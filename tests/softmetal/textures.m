/* textures.m: textures over buffers and with bytes of their own, samplers and copies. */
#import "texture_scene.h"

#include <float.h>
#include <stdint.h>

#include "softmetal/shim/softmetal_kernel.h"

/* ---- making ---- */

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
    CHECK(packed(descriptor) == SOFT_SAMPLER(1, 0, 2, 3, 5, 2, 0, 6, 2, 16, 2048, 2 * 4096));
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

static void
generate(id<MTLTexture> texture)
{
    id<MTLCommandBuffer> commands = [open_queue() commandBuffer];
    id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
    [blit generateMipmapsForTexture:texture];
    [blit endEncoding];
    finish(commands);
}

static id<MTLTexture>
make_leveled(MTLPixelFormat format, NSUInteger levels)
{
    MTLTextureDescriptor *descriptor = describe(MTLTextureType2D, format, 6, 2);
    [descriptor setMipmapLevelCount:levels];
    return make_texture(descriptor);
}

/* Six by two, three by one, and one pixel. */
CASE(smaller_levels_are_the_means_of_the_larger)
{
    id<MTLTexture> texture = make_leveled(MTLPixelFormatR8Unorm, 3);
    const soft_texture *as = seen(texture);
    memcpy(as->pixels, (unsigned char[]){0, 4, 8, 8, 2, 0, 8, 8, 8, 8, 0, 2}, 12);
    generate(texture);
    CHECK(memcmp(as->pixels + 12, (unsigned char[]){5, 8, 1}, 3) == 0);
    CHECK(as->pixels[15] == 5 && as->nbytes == 16); /* 14 / 3 */
}

/* ---- wrong use ---- */

REPORTS_BY("texture", levels_of_a_texture_that_has_one,
           generate(make_leveled(MTLPixelFormatR8Unorm, 1)))
REPORTS_BY("texture", levels_of_integers, generate(make_leveled(MTLPixelFormatR8Uint, 2)))
REPORTS_BY("texture", more_levels_than_halves,
           CHECK(make_leveled(MTLPixelFormatR8Unorm, 4) == nil))

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
CASE(a_linear_texture_has_its_buffers_options)
{
    id<MTLBuffer> buffer = make_buffer(128, MTLResourceHazardTrackingModeUntracked |
                                                MTLResourceCPUCacheModeWriteCombined);
    MTLTextureDescriptor *descriptor = describe(MTLTextureType2D, RED, 4, 2);
    [descriptor setResourceOptions:[buffer resourceOptions]];
    id<MTLTexture> texture = [[buffer newTextureWithDescriptor:descriptor
                                                        offset:0
                                                   bytesPerRow:16] autorelease];
    CHECK(texture != nil && [texture resourceOptions] == [buffer resourceOptions]);
    CHECK([texture hazardTrackingMode] == MTLHazardTrackingModeUntracked);
}

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
REPORTS_BY("texture", a_linear_texture_that_is_not_tracked_as_its_buffer_is, {
    MTLTextureDescriptor *descriptor = describe(MTLTextureType2D, RED, 4, 2);
    [descriptor setResourceOptions:MTLResourceHazardTrackingModeUntracked];
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
           [open_device()
               minimumLinearTextureAlignmentForPixelFormat:MTLPixelFormatDepth16Unorm])
REPORTS_BY("argument", a_texture_of_nothing, CHECK(make_texture(nil) == nil))
REPORTS("texture", a_sampler_of_pixels_that_repeats)
{
    MTLSamplerDescriptor *descriptor = [[[MTLSamplerDescriptor alloc] init] autorelease];
    [descriptor setNormalizedCoordinates:NO];
    [descriptor setSAddressMode:MTLSamplerAddressModeRepeat];
    CHECK([open_device() newSamplerStateWithDescriptor:descriptor] == nil);
}
