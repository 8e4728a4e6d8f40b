/* textures.m: MTLTexture and MTLSamplerState: made, asked, filled and read by a blit. */
#import "bridge/parts.h"

/* ---- textures ---- */

/* An atomic operation needs a usage of its own, which these formats have on every Apple GPU; an M1 ends the
 * process for rg32Uint.  SPEC MoltenVK issues 2172, 2414 */
static MTLTextureUsage
usage_of(const bridge_texture_facts *facts)
{
    MTLTextureUsage usage = MTLTextureUsageShaderRead;
    if (facts->is_written) {
        usage |= MTLTextureUsageShaderWrite;
        if (facts->format == MTLPixelFormatR32Uint || facts->format == MTLPixelFormatR32Sint) {
            usage |= MTLTextureUsageShaderAtomic;
        }
    }
    return usage;
}

/* +1. */
static MTLTextureDescriptor *
make_descriptor(const bridge_texture_facts *facts, MTLResourceOptions options)
{
    MTLTextureDescriptor *descriptor = [[MTLTextureDescriptor alloc] init];
    [descriptor setTextureType:(MTLTextureType)facts->type];
    [descriptor setPixelFormat:(MTLPixelFormat)facts->format];
    [descriptor setWidth:facts->width];
    [descriptor setHeight:facts->height];
    [descriptor setDepth:facts->depth];
    [descriptor setArrayLength:facts->slices];
    [descriptor setMipmapLevelCount:facts->levels];
    [descriptor setResourceOptions:options];
    [descriptor setUsage:usage_of(facts)];
    return descriptor;
}

static bridge_status
give_texture(id<MTLTexture> texture, bridge_texture **out)
{
    *out = (bridge_texture *)(void *)texture;
    return texture == nil ? BRIDGE_NO_TEXTURE : BRIDGE_OK;
}

bridge_status
bridge_texture_new(bridge_device *device, const bridge_texture_facts *facts,
                   bridge_texture **out)
{
    *out = NULL;
    if (bridge_is_forked()) {
        return BRIDGE_FORKED;
    }
    IN_POOL;
    MTLTextureDescriptor *descriptor = make_descriptor(facts, MTLResourceStorageModePrivate);
    bridge_status status =
        give_texture([device_object(device) newTextureWithDescriptor:descriptor], out);
    [descriptor release];
    return status;
}

size_t
bridge_texture_alignment(bridge_device *device, unsigned format, bool is_line)
{
    IN_POOL;
    id<MTLDevice> object = device_object(device);
    return is_line
               ? [object minimumTextureBufferAlignmentForPixelFormat:(MTLPixelFormat)format]
               : [object minimumLinearTextureAlignmentForPixelFormat:(MTLPixelFormat)format];
}

bridge_status
bridge_texture_new_linear(bridge_buffer *buffer, const bridge_texture_facts *facts,
                          size_t offset_bytes, size_t row_nbytes, bridge_texture **out)
{
    *out = NULL;
    if (bridge_is_forked()) {
        return BRIDGE_FORKED;
    }
    IN_POOL;
    MTLTextureDescriptor *descriptor =
        make_descriptor(facts, [buffer_object(buffer) resourceOptions]);
    bridge_status status =
        give_texture([buffer_object(buffer) newTextureWithDescriptor:descriptor
                                                              offset:offset_bytes
                                                         bytesPerRow:row_nbytes],
                     out);
    [descriptor release];
    return status;
}

void
bridge_texture_release(bridge_texture *texture)
{
    release_object(texture);
}

uint64_t
bridge_texture_resource_id(bridge_texture *texture)
{
    return [texture_object(texture) gpuResourceID]._impl;
}

void
bridge_texture_copy_label(bridge_texture *texture, char *out, size_t capacity)
{
    out[0] = '\0';
    if (bridge_is_forked()) {
        return;
    }
    IN_POOL;
    copy_text([texture_object(texture) label], out, capacity);
}

void
bridge_texture_set_label(bridge_texture *texture, const char *label)
{
    IN_POOL;
    [texture_object(texture) setLabel:[NSString stringWithUTF8String:label]];
}

/* ---- copies ---- */

/* Each image by a blit of its own: of an array Metal takes one slice at a time, and one blit moves at most 4 GiB, which
 * is what the largest image has. */
bridge_status
bridge_encode_to_texture(bridge_commands *commands, bridge_buffer *src, bridge_texture *dst,
                         const bridge_box *box)
{
    IN_POOL;
    id<MTLBlitCommandEncoder> encoder = begin_blit(commands, "metal_dlpack copy");
    for (size_t i = 0; encoder != nil && i < box->images; i++) {
        [encoder copyFromBuffer:buffer_object(src)
                   sourceOffset:box->offset_bytes + i * box->image_nbytes
              sourceBytesPerRow:box->row_nbytes
            sourceBytesPerImage:box->image_nbytes
                     sourceSize:(MTLSize){box->width, box->height, 1}
                      toTexture:texture_object(dst)
               destinationSlice:box->is_deep ? 0 : i
               destinationLevel:box->level
              destinationOrigin:(MTLOrigin){0, 0, box->is_deep ? i : 0}];
    }
    if (box->is_generated) {
        [encoder generateMipmapsForTexture:texture_object(dst)];
    }
    [encoder endEncoding];
    return encoder == nil ? BRIDGE_NO_COMMAND : BRIDGE_OK;
}

bridge_status
bridge_encode_from_texture(bridge_commands *commands, bridge_texture *src, bridge_buffer *dst,
                           const bridge_box *box)
{
    IN_POOL;
    id<MTLBlitCommandEncoder> encoder = begin_blit(commands, "metal_dlpack copy");
    for (size_t i = 0; encoder != nil && i < box->images; i++) {
        [encoder copyFromTexture:texture_object(src)
                         sourceSlice:box->is_deep ? 0 : i
                         sourceLevel:box->level
                        sourceOrigin:(MTLOrigin){0, 0, box->is_deep ? i : 0}
                          sourceSize:(MTLSize){box->width, box->height, 1}
                            toBuffer:buffer_object(dst)
                   destinationOffset:box->offset_bytes + i * box->image_nbytes
              destinationBytesPerRow:box->row_nbytes
            destinationBytesPerImage:box->image_nbytes];
    }
    [encoder endEncoding];
    return encoder == nil ? BRIDGE_NO_COMMAND : BRIDGE_OK;
}

/* ---- samplers ---- */

bridge_status
bridge_sampler_new(bridge_device *device, const bridge_sampler_facts *facts,
                   bridge_sampler **out)
{
    *out = NULL;
    if (bridge_is_forked()) {
        return BRIDGE_FORKED;
    }
    IN_POOL;
    MTLSamplerDescriptor *descriptor = [[MTLSamplerDescriptor alloc] init];
    [descriptor setMinFilter:(MTLSamplerMinMagFilter)facts->min_filter];
    [descriptor setMagFilter:(MTLSamplerMinMagFilter)facts->mag_filter];
    [descriptor setMipFilter:(MTLSamplerMipFilter)facts->mip_filter];
    [descriptor setSAddressMode:(MTLSamplerAddressMode)facts->address[0]];
    [descriptor setTAddressMode:(MTLSamplerAddressMode)facts->address[1]];
    [descriptor setRAddressMode:(MTLSamplerAddressMode)facts->address[2]];
    [descriptor setBorderColor:(MTLSamplerBorderColor)facts->border];
    [descriptor setCompareFunction:(MTLCompareFunction)facts->compare];
    [descriptor setMaxAnisotropy:facts->max_anisotropy];
    [descriptor setNormalizedCoordinates:facts->is_normalized];
    [descriptor setLodMinClamp:facts->lod_min];
    [descriptor setLodMaxClamp:facts->lod_max];
    [descriptor setSupportArgumentBuffers:YES]; /* for gpuResourceID */
    id<MTLSamplerState> sampler =
        [device_object(device) newSamplerStateWithDescriptor:descriptor];
    [descriptor release];
    *out = (bridge_sampler *)(void *)sampler;
    return sampler == nil ? BRIDGE_NO_SAMPLER : BRIDGE_OK;
}

void
bridge_sampler_release(bridge_sampler *sampler)
{
    release_object(sampler);
}

uint64_t
bridge_sampler_resource_id(bridge_sampler *sampler)
{
    return [sampler_object(sampler) gpuResourceID]._impl;
}
