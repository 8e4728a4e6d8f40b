/* texture_scene.h: what the cases of textures are made with. */
#ifndef TEXTURE_SCENE_H
#define TEXTURE_SCENE_H

#import "check.h"

#define RED MTLPixelFormatR32Uint

static inline MTLTextureDescriptor *
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

static inline id<MTLTexture>
make_texture(MTLTextureDescriptor *descriptor)
{
    return [[open_device() newTextureWithDescriptor:descriptor] autorelease];
}

/* 4 by `height` pixels of 32 bits in rows of 32 bytes, from byte 16 on. */
static inline id<MTLTexture>
make_linear(id<MTLBuffer> buffer, NSUInteger height)
{
    return [[buffer newTextureWithDescriptor:describe(MTLTextureType2D, RED, 4, height)
                                      offset:16
                                 bytesPerRow:32] autorelease];
}

static inline id<MTLBuffer>
counted_buffer(NSUInteger nbytes)
{
    id<MTLBuffer> buffer = make_buffer(nbytes, 0);
    for (NSUInteger i = 0; i < nbytes; i++) {
        ((unsigned char *)[buffer contents])[i] = (unsigned char)i;
    }
    return buffer;
}

#endif /* TEXTURE_SCENE_H */
