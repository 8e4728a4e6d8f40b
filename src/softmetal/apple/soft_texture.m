/* soft_texture.m: MTLTexture and its descriptor.
 *
 * Owns:    a texture the buffer that its bytes are in: somebody's, or one that nobody else has.
 * Calls:   pixels.h, validation.h.
 * Threads: any; a texture never changes.
 */
#import "softmetal/apple/objects.h"

#include "softmetal/failure.h"
#include "softmetal/host.h"
#include "softmetal/validation.h"

@implementation MTLTextureDescriptor

/* What Apple's has: one pixel, in the memory of CPU and GPU, to be read. */
- (instancetype)init
{
    self = [super init];
    _textureType = MTLTextureType2D;
    _pixelFormat = MTLPixelFormatRGBA8Unorm;
    _width = _height = _depth = _mipmapLevelCount = _arrayLength = 1;
    _usage = MTLTextureUsageShaderRead;
    return self;
}

SOFT_ATTRIBUTE(MTLTextureType, textureType, TextureType)
SOFT_ATTRIBUTE(MTLPixelFormat, pixelFormat, PixelFormat)
SOFT_ATTRIBUTE(NSUInteger, width, Width)
SOFT_ATTRIBUTE(NSUInteger, height, Height)
SOFT_ATTRIBUTE(NSUInteger, depth, Depth)
SOFT_ATTRIBUTE(NSUInteger, mipmapLevelCount, MipmapLevelCount)
SOFT_ATTRIBUTE(NSUInteger, arrayLength, ArrayLength)
SOFT_ATTRIBUTE(MTLResourceOptions, resourceOptions, ResourceOptions)
SOFT_ATTRIBUTE(MTLTextureUsage, usage, Usage)

- (MTLStorageMode)storageMode
{
    return (_resourceOptions & MTLResourceStorageModeMask) >> MTLResourceStorageModeShift;
}

- (void)setStorageMode:(MTLStorageMode)mode
{
    _resourceOptions =
        (_resourceOptions & ~MTLResourceStorageModeMask) | mode << MTLResourceStorageModeShift;
}

@end

/* ---- what a descriptor asks for ---- */

typedef struct soft_type_facts {
    BOOL is_array, is_cube, is_flat; /* is_flat: one row */
} soft_type_facts;

static soft_type_facts
facts_of(MTLTextureType type)
{
    return (soft_type_facts){
        .is_array = type == MTLTextureType1DArray || type == MTLTextureType2DArray ||
                    type == MTLTextureTypeCubeArray,
        .is_cube = type == MTLTextureTypeCube || type == MTLTextureTypeCubeArray,
        .is_flat = type == MTLTextureType1D || type == MTLTextureType1DArray ||
                   type == MTLTextureTypeTextureBuffer,
    };
}

static BOOL
is_within(const char *method, const char *what, NSUInteger value, NSUInteger most)
{
    return SOFT_DEMAND(value >= 1 && value <= most, SOFT_REPORT_TEXTURE,
                       "-[%s]: the %s (%lu) is not within 1 to %lu.", method, what, value,
                       most);
}

static BOOL
are_extents_good(const char *method, MTLTextureDescriptor *descriptor)
{
    MTLTextureType type = [descriptor textureType];
    soft_type_facts facts = facts_of(type);
    BOOL isDeep = type == MTLTextureType3D;
    NSUInteger most = type == MTLTextureTypeTextureBuffer ? TEXTURE_MOST_IN_LINE
                      : isDeep                            ? TEXTURE_MOST_DEEP
                                                          : TEXTURE_MOST_PIXELS;
    return is_within(method, "width", [descriptor width], most) &&
           is_within(method, "height", [descriptor height], facts.is_flat ? 1 : most) &&
           is_within(method, "depth", [descriptor depth], isDeep ? TEXTURE_MOST_DEEP : 1) &&
           is_within(method, "arrayLength", [descriptor arrayLength],
                     facts.is_array ? TEXTURE_MOST_DEEP : 1) &&
           is_within(method, "mipmapLevelCount", [descriptor mipmapLevelCount],
                     facts.is_flat ? 1
                                   : texture_most_levels((unsigned)[descriptor width],
                                                         (unsigned)[descriptor height],
                                                         (unsigned)[descriptor depth])) &&
           SOFT_DEMAND(!facts.is_cube || [descriptor width] == [descriptor height],
                       SOFT_REPORT_TEXTURE, "-[%s]: a cube's width (%lu) is its height (%lu).",
                       method, [descriptor width], [descriptor height]);
}

static BOOL
is_descriptor_good(const char *method, MTLTextureDescriptor *descriptor)
{
    const MTLTextureUsage known =
        MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite | MTLTextureUsageShaderAtomic;
    const pixel_format *format =
        descriptor == nil ? NULL : pixel_format_of_number((unsigned)[descriptor pixelFormat]);
    MTLTextureUsage usage = [descriptor usage];
    return SOFT_DEMAND(descriptor != nil, SOFT_REPORT_ARGUMENT, "-[%s]: the descriptor is nil.",
                       method) &&
           SOFT_DEMAND(format != NULL, SOFT_REPORT_TEXTURE,
                       "-[%s]: the software Metal has no pixel format %lu.", method,
                       [descriptor pixelFormat]) &&
           SOFT_DEMAND([descriptor textureType] <= MTLTextureTypeTextureBuffer &&
                           [descriptor textureType] != 4 && [descriptor textureType] != 8,
                       SOFT_REPORT_TEXTURE,
                       "-[%s]: the software Metal has no texture type %lu.", method,
                       [descriptor textureType]) &&
           SOFT_DEMAND([descriptor storageMode] <= MTLStorageModePrivate, SOFT_REPORT_TEXTURE,
                       "-[%s]: the software Metal has no textures of storage mode %lu.", method,
                       [descriptor storageMode]) &&
           SOFT_DEMAND(usage != 0 && (usage & ~known) == 0, SOFT_REPORT_TEXTURE,
                       "-[%s]: the usage (0x%lx) is none of a kernel's.", method, usage) &&
           SOFT_DEMAND((usage & MTLTextureUsageShaderWrite) == 0 || format->kind != PIXEL_DEPTH,
                       SOFT_REPORT_TEXTURE, "-[%s]: no kernel writes to %s.", method,
                       format->name) &&
           are_extents_good(method, descriptor);
}

static soft_texture
describe(MTLTextureDescriptor *descriptor)
{
    soft_type_facts facts = facts_of([descriptor textureType]);
    return (soft_texture){
        .type = (soft_u32)[descriptor textureType],
        .format = (soft_u32)[descriptor pixelFormat],
        .width = (soft_u32)[descriptor width],
        .height = (soft_u32)[descriptor height],
        .depth = (soft_u32)[descriptor depth],
        .slices = (soft_u32)([descriptor arrayLength] * (facts.is_cube ? 6 : 1)),
        .levels = (soft_u32)[descriptor mipmapLevelCount],
    };
}

/* ---- making ---- */

@implementation SoftMetalTexture

/* Keeps `memory`, and lets go of itself where there is no memory. */
- (instancetype)initWithMemory:(SoftMetalBuffer *)memory
                            as:(const soft_texture *)as
                        offset:(NSUInteger)offset
                         usage:(MTLTextureUsage)usage
{
    self = [super init];
    _memory = [memory retain];
    _pixels = soft_pixels_new(as, memory->_storage, offset, (unsigned)usage);
    if (_pixels == NULL) {
        [self release];
        return nil;
    }
    return self;
}

- (void)dealloc
{
    soft_pixels_release(_pixels);
    [_memory release];
    [super dealloc];
}

BOOL
soft_texture_describe(MTLTextureDescriptor *descriptor, soft_texture *as)
{
    if (!is_descriptor_good("MTLDevice newTextureWithDescriptor:", descriptor)) {
        return NO;
    }
    *as = describe(descriptor);
    soft_texture_lay_out(as, pixel_format_nbytes(pixel_format_of_number(as->format)), 1);
    return YES;
}

SoftMetalTexture *
soft_texture_make(SoftMetalBuffer *memory, const soft_texture *as, MTLTextureUsage usage)
{
    SoftMetalTexture *texture = memory == nil ? nil
                                              : [[SoftMetalTexture alloc] initWithMemory:memory
                                                                                      as:as
                                                                                  offset:0
                                                                                   usage:usage];
    [memory release];
    return texture;
}

static BOOL
is_place_good(const char *method, const SoftMetalBuffer *buffer,
              MTLTextureDescriptor *descriptor, NSUInteger offset, NSUInteger row_nbytes)
{
    const pixel_format *format = pixel_format_of_number((unsigned)[descriptor pixelFormat]);
    NSUInteger least = [descriptor width] * pixel_format_nbytes(format);
    NSUInteger nbytes = row_nbytes * ([descriptor height] - 1) + least;
    return SOFT_DEMAND(offset % SOFT_LINEAR_ALIGNMENT == 0, SOFT_REPORT_TEXTURE,
                       "-[%s]: the offset (%lu) of a texture of %s must be a multiple of %d.",
                       method, offset, format->name, SOFT_LINEAR_ALIGNMENT) &&
           SOFT_DEMAND(row_nbytes % SOFT_LINEAR_ALIGNMENT == 0, SOFT_REPORT_TEXTURE,
                       "-[%s]: the bytes of a row (%lu) of a texture of %s must be a multiple "
                       "of %d.",
                       method, row_nbytes, format->name, SOFT_LINEAR_ALIGNMENT) &&
           SOFT_DEMAND(row_nbytes >= least, SOFT_REPORT_TEXTURE,
                       "-[%s]: the bytes of a row (%lu) are fewer than its pixels' (%lu).",
                       method, row_nbytes, least) &&
           SOFT_DEMAND(
               offset <= buffer->_storage->nbytes &&
                   nbytes <= buffer->_storage->nbytes - offset,
               SOFT_REPORT_TEXTURE,
               "-[%s]: the texture (%lu + %lu bytes) passes the end of the buffer (%zu).",
               method, offset, nbytes, buffer->_storage->nbytes);
}

static BOOL
is_linear_good(const char *method, const SoftMetalBuffer *buffer,
               MTLTextureDescriptor *descriptor, NSUInteger offset, NSUInteger row_nbytes)
{
    if (!is_descriptor_good(method, descriptor)) {
        return NO;
    }
    MTLTextureType type = [descriptor textureType];
    const pixel_format *format = pixel_format_of_number((unsigned)[descriptor pixelFormat]);
    return SOFT_DEMAND(type == MTLTextureType2D || type == MTLTextureTypeTextureBuffer,
                       SOFT_REPORT_TEXTURE,
                       "-[%s]: a buffer's texture has the type 2D or TextureBuffer, not %lu.",
                       method, type) &&
           SOFT_DEMAND(format->kind != PIXEL_DEPTH, SOFT_REPORT_TEXTURE,
                       "-[%s]: no buffer's texture is of %s.", method, format->name) &&
           SOFT_DEMAND([descriptor mipmapLevelCount] == 1, SOFT_REPORT_TEXTURE,
                       "-[%s]: a buffer's texture has one level, not %lu.", method,
                       [descriptor mipmapLevelCount]) &&
           SOFT_DEMAND([descriptor resourceOptions] == buffer->_options, SOFT_REPORT_TEXTURE,
                       "-[%s]: the texture's options (0x%lx) are the buffer's (0x%lx).", method,
                       [descriptor resourceOptions], buffer->_options) &&
           is_place_good(method, buffer, descriptor, offset, row_nbytes);
}

SoftMetalTexture *
soft_texture_make_linear(SoftMetalBuffer *buffer, MTLTextureDescriptor *descriptor,
                         NSUInteger offset, NSUInteger row_nbytes)
{
    const char *method = "MTLBuffer newTextureWithDescriptor:offset:bytesPerRow:";
    if (!SOFT_DEMAND(!soft_process_is_forked(), SOFT_REPORT_FORK, "-[%s] in a child of fork().",
                     method) ||
        soft_failure_strikes(SOFT_FAIL_TEXTURE, NULL) ||
        !is_linear_good(method, buffer, descriptor, offset, row_nbytes)) {
        return nil;
    }
    soft_texture as = describe(descriptor);
    soft_texture_lay_out(&as, pixel_format_nbytes(pixel_format_of_number(as.format)),
                         row_nbytes);
    /* to the last pixel: what is behind it in its row may be somebody else's */
    as.nbytes -= row_nbytes - as.width * pixel_format_nbytes(pixel_format_of_number(as.format));
    SoftMetalTexture *texture = [[SoftMetalTexture alloc] initWithMemory:buffer
                                                                      as:&as
                                                                  offset:offset
                                                                   usage:[descriptor usage]];
    if (texture != nil) {
        texture->_isLinear = YES;
    }
    return texture;
}

/* ---- what it says ---- */

- (void)setLabel:(NSString *)label
{
    [super setLabel:label];
    if (!_isLinear) {
        [_memory setLabel:label];
    }
}

- (id<MTLDevice>)device
{
    return [_memory device];
}

- (MTLStorageMode)storageMode
{
    return [_memory storageMode];
}

- (MTLResourceOptions)resourceOptions
{
    return [_memory resourceOptions];
}

- (MTLHazardTrackingMode)hazardTrackingMode
{
    return [_memory hazardTrackingMode];
}

- (MTLPurgeableState)setPurgeableState:(MTLPurgeableState)state
{
    return [_memory setPurgeableState:state];
}

- (id<MTLBuffer>)buffer
{
    return _isLinear ? _memory : nil;
}

- (NSUInteger)bufferOffset
{
    return _isLinear ? soft_pixels_offset(_pixels, 0, 0, 0, 0) : 0;
}

- (NSUInteger)bufferBytesPerRow
{
    return _isLinear ? _pixels->as.level[0].row_nbytes : 0;
}

- (MTLTextureType)textureType
{
    return _pixels->as.type;
}

- (MTLPixelFormat)pixelFormat
{
    return _pixels->as.format;
}

- (NSUInteger)width
{
    return _pixels->as.width;
}

- (NSUInteger)height
{
    return _pixels->as.height;
}

- (NSUInteger)depth
{
    return _pixels->as.depth;
}

- (NSUInteger)mipmapLevelCount
{
    return _pixels->as.levels;
}

- (NSUInteger)arrayLength
{
    return facts_of(_pixels->as.type).is_cube ? _pixels->as.slices / 6 : _pixels->as.slices;
}

- (MTLTextureUsage)usage
{
    return _pixels->usage;
}

- (MTLResourceID)gpuResourceID
{
    return (MTLResourceID){(uint64_t)(uintptr_t)&_pixels->as};
}

@end
