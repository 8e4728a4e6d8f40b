/* MTLSampler.h: samplers.  As Apple declares them; part of Metal.h. */
#ifndef SOFTMETAL_SAMPLER_H
#define SOFTMETAL_SAMPLER_H

#import <Metal/MTLTypes.h>

@protocol MTLDevice;

typedef NS_ENUM(NSUInteger, MTLCompareFunction) {
    MTLCompareFunctionNever = 0,
    MTLCompareFunctionLess = 1,
    MTLCompareFunctionEqual = 2,
    MTLCompareFunctionLessEqual = 3,
    MTLCompareFunctionGreater = 4,
    MTLCompareFunctionNotEqual = 5,
    MTLCompareFunctionGreaterEqual = 6,
    MTLCompareFunctionAlways = 7,
};

typedef NS_ENUM(NSUInteger, MTLSamplerMinMagFilter) {
    MTLSamplerMinMagFilterNearest = 0,
    MTLSamplerMinMagFilterLinear = 1,
};

typedef NS_ENUM(NSUInteger, MTLSamplerMipFilter) {
    MTLSamplerMipFilterNotMipmapped = 0,
    MTLSamplerMipFilterNearest = 1,
    MTLSamplerMipFilterLinear = 2,
};

typedef NS_ENUM(NSUInteger, MTLSamplerAddressMode) {
    MTLSamplerAddressModeClampToEdge = 0,
    MTLSamplerAddressModeMirrorClampToEdge = 1,
    MTLSamplerAddressModeRepeat = 2,
    MTLSamplerAddressModeMirrorRepeat = 3,
    MTLSamplerAddressModeClampToZero = 4,
    MTLSamplerAddressModeClampToBorderColor = 5,
};

typedef NS_ENUM(NSUInteger, MTLSamplerBorderColor) {
    MTLSamplerBorderColorTransparentBlack = 0,
    MTLSamplerBorderColorOpaqueBlack = 1,
    MTLSamplerBorderColorOpaqueWhite = 2,
};

@interface MTLSamplerDescriptor : NSObject {
  @private
    MTLSamplerMinMagFilter _minFilter, _magFilter;
    MTLSamplerMipFilter _mipFilter;
    NSUInteger _maxAnisotropy;
    MTLSamplerAddressMode _sAddressMode, _tAddressMode, _rAddressMode;
    MTLSamplerBorderColor _borderColor;
    BOOL _normalizedCoordinates, _supportArgumentBuffers;
    float _lodMinClamp, _lodMaxClamp;
    MTLCompareFunction _compareFunction;
}
@property(nonatomic) MTLSamplerMinMagFilter minFilter;
@property(nonatomic) MTLSamplerMinMagFilter magFilter;
@property(nonatomic) MTLSamplerMipFilter mipFilter;
@property(nonatomic) NSUInteger maxAnisotropy;
@property(nonatomic) MTLSamplerAddressMode sAddressMode;
@property(nonatomic) MTLSamplerAddressMode tAddressMode;
@property(nonatomic) MTLSamplerAddressMode rAddressMode;
@property(nonatomic) MTLSamplerBorderColor borderColor;
@property(nonatomic) BOOL normalizedCoordinates;
@property(nonatomic) float lodMinClamp;
@property(nonatomic) float lodMaxClamp;
@property(nonatomic) MTLCompareFunction compareFunction;
@property(nonatomic) BOOL supportArgumentBuffers;
@end

@protocol MTLSamplerState <NSObject>
@property(readonly) id<MTLDevice> device;
@property(readonly) MTLResourceID gpuResourceID;
@end

#endif /* SOFTMETAL_SAMPLER_H */
