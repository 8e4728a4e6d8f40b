/* MTLTexture.h: textures.  As Apple declares them; part of Metal.h. */
#ifndef SOFTMETAL_TEXTURE_H
#define SOFTMETAL_TEXTURE_H

#import <Metal/MTLTypes.h>

typedef NS_ENUM(NSUInteger, MTLPixelFormat) {
    MTLPixelFormatInvalid = 0,
    MTLPixelFormatR8Unorm = 10,
    MTLPixelFormatR8Unorm_sRGB = 11,
    MTLPixelFormatR8Snorm = 12,
    MTLPixelFormatR8Uint = 13,
    MTLPixelFormatR8Sint = 14,
    MTLPixelFormatR16Unorm = 20,
    MTLPixelFormatR16Snorm = 22,
    MTLPixelFormatR16Uint = 23,
    MTLPixelFormatR16Sint = 24,
    MTLPixelFormatR16Float = 25,
    MTLPixelFormatRG8Unorm = 30,
    MTLPixelFormatRG8Unorm_sRGB = 31,
    MTLPixelFormatRG8Snorm = 32,
    MTLPixelFormatRG8Uint = 33,
    MTLPixelFormatRG8Sint = 34,
    MTLPixelFormatR32Uint = 53,
    MTLPixelFormatR32Sint = 54,
    MTLPixelFormatR32Float = 55,
    MTLPixelFormatRG16Unorm = 60,
    MTLPixelFormatRG16Snorm = 62,
    MTLPixelFormatRG16Uint = 63,
    MTLPixelFormatRG16Sint = 64,
    MTLPixelFormatRG16Float = 65,
    MTLPixelFormatRGBA8Unorm = 70,
    MTLPixelFormatRGBA8Unorm_sRGB = 71,
    MTLPixelFormatRGBA8Snorm = 72,
    MTLPixelFormatRGBA8Uint = 73,
    MTLPixelFormatRGBA8Sint = 74,
    MTLPixelFormatBGRA8Unorm = 80,
    MTLPixelFormatBGRA8Unorm_sRGB = 81,
    MTLPixelFormatRG32Uint = 103,
    MTLPixelFormatRG32Sint = 104,
    MTLPixelFormatRG32Float = 105,
    MTLPixelFormatRGBA16Unorm = 110,
    MTLPixelFormatRGBA16Snorm = 112,
    MTLPixelFormatRGBA16Uint = 113,
    MTLPixelFormatRGBA16Sint = 114,
    MTLPixelFormatRGBA16Float = 115,
    MTLPixelFormatRGBA32Uint = 123,
    MTLPixelFormatRGBA32Sint = 124,
    MTLPixelFormatRGBA32Float = 125,
    MTLPixelFormatDepth16Unorm = 250,
    MTLPixelFormatDepth32Float = 252,
};

typedef NS_ENUM(NSUInteger, MTLTextureType) {
    MTLTextureType1D = 0,
    MTLTextureType1DArray = 1,
    MTLTextureType2D = 2,
    MTLTextureType2DArray = 3,
    MTLTextureTypeCube = 5,
    MTLTextureTypeCubeArray = 6,
    MTLTextureType3D = 7,
    MTLTextureTypeTextureBuffer = 9,
};

typedef NS_OPTIONS(NSUInteger, MTLTextureUsage) {
    MTLTextureUsageUnknown = 0,
    MTLTextureUsageShaderRead = 1,
    MTLTextureUsageShaderWrite = 1 << 1,
    MTLTextureUsageShaderAtomic = 1 << 5,
};

@interface MTLTextureDescriptor : NSObject {
  @private
    MTLTextureType _textureType;
    MTLPixelFormat _pixelFormat;
    NSUInteger _width, _height, _depth, _mipmapLevelCount, _arrayLength;
    MTLResourceOptions _resourceOptions;
    MTLTextureUsage _usage;
}
@property(readwrite, nonatomic) MTLTextureType textureType;
@property(readwrite, nonatomic) MTLPixelFormat pixelFormat;
@property(readwrite, nonatomic) NSUInteger width;
@property(readwrite, nonatomic) NSUInteger height;
@property(readwrite, nonatomic) NSUInteger depth;
@property(readwrite, nonatomic) NSUInteger mipmapLevelCount;
@property(readwrite, nonatomic) NSUInteger arrayLength;
@property(readwrite, nonatomic) MTLStorageMode storageMode; /* of resourceOptions */
@property(readwrite, nonatomic) MTLResourceOptions resourceOptions;
@property(readwrite, nonatomic) MTLTextureUsage usage;
@end

@protocol MTLTexture <MTLResource>
@property(readonly) id<MTLBuffer> buffer; /* nil: it has bytes of its own */
@property(readonly) NSUInteger bufferOffset;
@property(readonly) NSUInteger bufferBytesPerRow;
@property(readonly) MTLTextureType textureType;
@property(readonly) MTLPixelFormat pixelFormat;
@property(readonly) NSUInteger width;
@property(readonly) NSUInteger height;
@property(readonly) NSUInteger depth;
@property(readonly) NSUInteger mipmapLevelCount;
@property(readonly) NSUInteger arrayLength;
@property(readonly) MTLTextureUsage usage;
@property(readonly) MTLResourceID gpuResourceID;
@end

#endif /* SOFTMETAL_TEXTURE_H */
