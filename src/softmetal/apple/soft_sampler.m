/* soft_sampler.m: MTLSamplerState, which is one number, and its descriptor.
 *
 * Owns:    nothing but the device.
 * Calls:   validation.h.
 * Threads: any; a sampler never changes.
 */
#import "softmetal/apple/objects.h"

#include <float.h>

#include "softmetal/validation.h"

@implementation MTLSamplerDescriptor

/* What Apple's has. */
- (instancetype)init
{
    self = [super init];
    _maxAnisotropy = 1;
    _normalizedCoordinates = YES;
    _lodMaxClamp = FLT_MAX;
    return self;
}

SOFT_ATTRIBUTE(MTLSamplerMinMagFilter, minFilter, MinFilter)
SOFT_ATTRIBUTE(MTLSamplerMinMagFilter, magFilter, MagFilter)
SOFT_ATTRIBUTE(MTLSamplerMipFilter, mipFilter, MipFilter)
SOFT_ATTRIBUTE(NSUInteger, maxAnisotropy, MaxAnisotropy)
SOFT_ATTRIBUTE(MTLSamplerAddressMode, sAddressMode, SAddressMode)
SOFT_ATTRIBUTE(MTLSamplerAddressMode, tAddressMode, TAddressMode)
SOFT_ATTRIBUTE(MTLSamplerAddressMode, rAddressMode, RAddressMode)
SOFT_ATTRIBUTE(MTLSamplerBorderColor, borderColor, BorderColor)
SOFT_ATTRIBUTE(BOOL, normalizedCoordinates, NormalizedCoordinates)
SOFT_ATTRIBUTE(float, lodMinClamp, LodMinClamp)
SOFT_ATTRIBUTE(float, lodMaxClamp, LodMaxClamp)
SOFT_ATTRIBUTE(MTLCompareFunction, compareFunction, CompareFunction)
SOFT_ATTRIBUTE(BOOL, supportArgumentBuffers, SupportArgumentBuffers)

@end

static const char method[] = "MTLDevice newSamplerStateWithDescriptor:";

static BOOL
is_clamped(MTLSamplerAddressMode mode)
{
    return mode == MTLSamplerAddressModeClampToEdge ||
           mode == MTLSamplerAddressModeClampToZero ||
           mode == MTLSamplerAddressModeClampToBorderColor;
}

/* Pixels as coordinates go with no neighbours beyond an edge and no levels.  SPEC MTLSampler.h
 * normalizedCoordinates */
static BOOL
is_pixel_good(MTLSamplerDescriptor *descriptor)
{
    return [descriptor normalizedCoordinates] ||
           (SOFT_DEMAND([descriptor minFilter] == [descriptor magFilter] &&
                            [descriptor mipFilter] == MTLSamplerMipFilterNotMipmapped &&
                            [descriptor maxAnisotropy] == 1,
                        SOFT_REPORT_TEXTURE,
                        "-[%s]: without normalizedCoordinates both filters are the same, there "
                        "is no mipFilter, and maxAnisotropy is 1.",
                        method) &&
            SOFT_DEMAND(is_clamped([descriptor sAddressMode]) &&
                            is_clamped([descriptor tAddressMode]) &&
                            is_clamped([descriptor rAddressMode]),
                        SOFT_REPORT_TEXTURE,
                        "-[%s]: without normalizedCoordinates the address modes are "
                        "ClampToEdge, ClampToZero or ClampToBorderColor.",
                        method));
}

static BOOL
is_good(MTLSamplerDescriptor *descriptor)
{
    return SOFT_DEMAND(descriptor != nil, SOFT_REPORT_ARGUMENT, "-[%s]: the descriptor is nil.",
                       method) &&
           SOFT_DEMAND([descriptor maxAnisotropy] >= 1 && [descriptor maxAnisotropy] <= 16,
                       SOFT_REPORT_TEXTURE, "-[%s]: maxAnisotropy (%lu) is not within 1 to 16.",
                       method, [descriptor maxAnisotropy]) &&
           SOFT_DEMAND([descriptor lodMinClamp] >= 0 &&
                           [descriptor lodMaxClamp] >= [descriptor lodMinClamp],
                       SOFT_REPORT_TEXTURE,
                       "-[%s]: the levels (%g to %g) are no range from 0 on.", method,
                       [descriptor lodMinClamp], [descriptor lodMaxClamp]) &&
           is_pixel_good(descriptor);
}

static soft_u64
pack_level(float level)
{
    return level >= 65535.0f / 4096 ? 65535 : (soft_u64)(level * 4096 + 0.5f);
}

@implementation SoftMetalSampler

- (void)dealloc
{
    [_device release];
    [super dealloc];
}

SoftMetalSampler *
soft_sampler_make(SoftMetalDevice *device, MTLSamplerDescriptor *descriptor)
{
    SoftMetalSampler *sampler = is_good(descriptor) ? [[SoftMetalSampler alloc] init] : nil;
    if (sampler != nil) {
        sampler->_device = [device retain];
        sampler->_packed =
            SOFT_SAMPLER([descriptor minFilter], [descriptor magFilter], [descriptor mipFilter],
                         [descriptor sAddressMode], [descriptor tAddressMode],
                         [descriptor rAddressMode], ![descriptor normalizedCoordinates],
                         [descriptor compareFunction], [descriptor borderColor],
                         [descriptor maxAnisotropy], pack_level([descriptor lodMinClamp]),
                         pack_level([descriptor lodMaxClamp]));
    }
    return sampler;
}

@synthesize device = _device;

- (MTLResourceID)gpuResourceID
{
    return (MTLResourceID){_packed};
}

@end
