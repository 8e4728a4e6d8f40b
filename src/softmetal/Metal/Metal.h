/* Metal.h: the part of Metal that moves bytes: devices, buffers, queues, blits, kernels,
 * events.
 *
 * Owns:    declarations only, each as in Apple's Metal: same selectors, types and values.
 * Calls:   Foundation/Foundation.h.
 * Threads: devices, resources, queues and events from any thread; one command buffer and its
 *          encoders from one thread at a time.
 * Owner:   `new...`, MTLCreateSystemDefaultDevice and MTLCopyAllDevices give +1; all else is
 *          autoreleased or borrowed.
 * Note:    without blocks (GCC) a block parameter is a pointer to a block literal made by
 *          hand.
 */
#ifndef SOFTMETAL_METAL_H
#define SOFTMETAL_METAL_H

#import <Foundation/Foundation.h>
#import <Metal/MTLResidencySet.h>
#import <Metal/MTLSampler.h>
#import <Metal/MTLTypes.h>

#define MTL_EXTERN extern

@class MTLTextureDescriptor, MTLCompileOptions, MTLFunctionConstantValues,
    MTLComputePipelineDescriptor, MTLComputePipelineReflection;

@protocol MTLDevice
, MTLTexture, MTLLibrary, MTLFunction, MTLComputePipelineState, MTLCommandQueue,
    MTLCommandBuffer, MTLBlitCommandEncoder, MTLComputeCommandEncoder;

/* ---- resources ---- */

typedef NS_ENUM(NSUInteger, MTLPurgeableState) {
    MTLPurgeableStateKeepCurrent = 1,
    MTLPurgeableStateNonVolatile = 2,
    MTLPurgeableStateVolatile = 3,
    MTLPurgeableStateEmpty = 4,
};

typedef NS_ENUM(NSUInteger, MTLCPUCacheMode) {
    MTLCPUCacheModeDefaultCache = 0,
    MTLCPUCacheModeWriteCombined = 1,
};

typedef NS_ENUM(NSUInteger, MTLStorageMode) {
    MTLStorageModeShared = 0,
    MTLStorageModeManaged = 1,
    MTLStorageModePrivate = 2,
    MTLStorageModeMemoryless = 3,
};

typedef NS_ENUM(NSUInteger, MTLHazardTrackingMode) {
    MTLHazardTrackingModeDefault = 0,
    MTLHazardTrackingModeUntracked = 1,
    MTLHazardTrackingModeTracked = 2,
};

#define MTLResourceCPUCacheModeShift 0
#define MTLResourceCPUCacheModeMask (0xfUL << MTLResourceCPUCacheModeShift)
#define MTLResourceStorageModeShift 4
#define MTLResourceStorageModeMask (0xfUL << MTLResourceStorageModeShift)
#define MTLResourceHazardTrackingModeShift 8
#define MTLResourceHazardTrackingModeMask (0x3UL << MTLResourceHazardTrackingModeShift)

typedef NS_OPTIONS(NSUInteger, MTLResourceOptions) {
    MTLResourceCPUCacheModeDefaultCache = MTLCPUCacheModeDefaultCache
        << MTLResourceCPUCacheModeShift,
    MTLResourceCPUCacheModeWriteCombined = MTLCPUCacheModeWriteCombined
        << MTLResourceCPUCacheModeShift,
    MTLResourceStorageModeShared = MTLStorageModeShared << MTLResourceStorageModeShift,
    MTLResourceStorageModeManaged = MTLStorageModeManaged << MTLResourceStorageModeShift,
    MTLResourceStorageModePrivate = MTLStorageModePrivate << MTLResourceStorageModeShift,
    MTLResourceStorageModeMemoryless = MTLStorageModeMemoryless << MTLResourceStorageModeShift,
    MTLResourceHazardTrackingModeDefault = MTLHazardTrackingModeDefault
        << MTLResourceHazardTrackingModeShift,
    MTLResourceHazardTrackingModeUntracked = MTLHazardTrackingModeUntracked
        << MTLResourceHazardTrackingModeShift,
    MTLResourceHazardTrackingModeTracked = MTLHazardTrackingModeTracked
        << MTLResourceHazardTrackingModeShift,
};

@protocol MTLResource <NSObject>
@property(copy) NSString *label;
@property(readonly) id<MTLDevice> device;
@property(readonly) MTLStorageMode storageMode;
@property(readonly) MTLHazardTrackingMode hazardTrackingMode;
@property(readonly) MTLResourceOptions resourceOptions;
- (MTLPurgeableState)setPurgeableState:(MTLPurgeableState)state;
@end

typedef uint64_t MTLGPUAddress;

@protocol MTLBuffer <MTLResource>
@property(readonly) NSUInteger length;
@property(readonly) MTLGPUAddress gpuAddress;
- (void *)contents; /* NULL for private storage */
- (id<MTLTexture>)newTextureWithDescriptor:(MTLTextureDescriptor *)descriptor
                                    offset:(NSUInteger)offset
                               bytesPerRow:(NSUInteger)bytesPerRow;
@end

#import <Metal/MTLTexture.h>

/* ---- events and fences ---- */

@protocol MTLEvent <NSObject>
@property(readonly) id<MTLDevice> device;
@property(copy) NSString *label;
@end

@protocol MTLSharedEvent <MTLEvent>
- (BOOL)waitUntilSignaledValue:(uint64_t)value timeoutMS:(uint64_t)milliseconds;
@property(readwrite) uint64_t signaledValue;
@end

@protocol MTLFence <NSObject>
@property(readonly) id<MTLDevice> device;
@property(copy) NSString *label;
@end

/* ---- devices ---- */

typedef NS_OPTIONS(NSUInteger, MTLPipelineOption) {
    MTLPipelineOptionNone = 0,
    MTLPipelineOptionBindingInfo = 1 << 0,
    MTLPipelineOptionBufferTypeInfo = 1 << 1,
};

typedef MTLComputePipelineReflection *MTLAutoreleasedComputePipelineReflection;

@protocol MTLDevice <NSObject>
@property(readonly) NSString *name;
@property(readonly) uint64_t registryID;
@property(readonly) BOOL hasUnifiedMemory;
@property(readonly) uint64_t recommendedMaxWorkingSetSize;
@property(readonly) NSUInteger maxBufferLength;
@property(readonly) NSUInteger currentAllocatedSize;
@property(readonly) NSUInteger maxThreadgroupMemoryLength;
- (id<MTLCommandQueue>)newCommandQueue;
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:
    (NSUInteger)maxCommandBufferCount;
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options;
- (id<MTLBuffer>)newBufferWithBytes:(const void *)pointer
                             length:(NSUInteger)length
                            options:(MTLResourceOptions)options;
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)pointer
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
#if defined(__BLOCKS__)
                              deallocator:
                                  (void (^)(void *pointer, NSUInteger length))deallocator;
#else
                              deallocator:(const void *)deallocator;
#endif
- (id<MTLTexture>)newTextureWithDescriptor:(MTLTextureDescriptor *)descriptor;
- (NSUInteger)minimumLinearTextureAlignmentForPixelFormat:(MTLPixelFormat)format;
- (NSUInteger)minimumTextureBufferAlignmentForPixelFormat:(MTLPixelFormat)format;
- (id<MTLSamplerState>)newSamplerStateWithDescriptor:(MTLSamplerDescriptor *)descriptor;
- (id<MTLFence>)newFence;
- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source
                               options:(MTLCompileOptions *)options
                                 error:(NSError **)error;
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:
                                   (id<MTLFunction>)computeFunction
                                                             error:(NSError **)error;
- (id<MTLComputePipelineState>)
    newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                                options:(MTLPipelineOption)options
                             reflection:(MTLAutoreleasedComputePipelineReflection *)reflection
                                  error:(NSError **)error;
- (id<MTLComputePipelineState>)
    newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor *)descriptor
                                  options:(MTLPipelineOption)options
                               reflection:(MTLAutoreleasedComputePipelineReflection *)reflection
                                    error:(NSError **)error;
- (id<MTLSharedEvent>)newSharedEvent;
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor *)descriptor
                                               error:(NSError **)error;
@end

/* +1, or nil where there is no device. */
MTL_EXTERN id<MTLDevice> MTLCreateSystemDefaultDevice(void) NS_RETURNS_RETAINED;
/* +1; may be empty. */
MTL_EXTERN NSArray *MTLCopyAllDevices(void) NS_RETURNS_RETAINED;

/* ---- libraries: compiled kernels ---- */

typedef NS_ENUM(NSUInteger, MTLLibraryError) {
    MTLLibraryErrorUnsupported = 1,
    MTLLibraryErrorInternal = 2,
    MTLLibraryErrorCompileFailure = 3,
    MTLLibraryErrorCompileWarning = 4,
    MTLLibraryErrorFunctionNotFound = 5,
    MTLLibraryErrorFileNotFound = 6,
};

MTL_EXTERN NSErrorDomain const MTLLibraryErrorDomain;

typedef NS_ENUM(NSUInteger, MTLLanguageVersion) {
    MTLLanguageVersion3_0 = (3 << 16),
    MTLLanguageVersion3_1 = (3 << 16) + 1,
    MTLLanguageVersion3_2 = (3 << 16) + 2,
};

typedef NS_ENUM(NSInteger, MTLMathMode) {
    MTLMathModeSafe = 0,
    MTLMathModeRelaxed = 1,
    MTLMathModeFast = 2,
};

typedef NS_ENUM(NSInteger, MTLMathFloatingPointFunctions) {
    MTLMathFloatingPointFunctionsFast = 0,
    MTLMathFloatingPointFunctionsPrecise = 1,
};

/* Without a word, math and its functions are fast, and the language is that of the SDK which the
 * program was built with: here an old one, so that nobody relies on it. */
@interface MTLCompileOptions : NSObject {
  @private
    MTLLanguageVersion _languageVersion;
    MTLMathMode _mathMode;
    MTLMathFloatingPointFunctions _mathFloatingPointFunctions;
}
@property(readwrite, nonatomic) BOOL fastMathEnabled; /* the two below at once */
@property(readwrite, nonatomic) MTLMathMode mathMode;
@property(readwrite, nonatomic) MTLMathFloatingPointFunctions mathFloatingPointFunctions;
@property(readwrite, nonatomic) MTLLanguageVersion languageVersion;
@end

@protocol MTLLibrary <NSObject>
@property(copy) NSString *label;
@property(readonly) id<MTLDevice> device;
- (id<MTLFunction>)newFunctionWithName:(NSString *)functionName; /* nil: there is none */
- (id<MTLFunction>)newFunctionWithName:(NSString *)name
                        constantValues:(MTLFunctionConstantValues *)constantValues
                                 error:(NSError **)error;
@property(readonly) NSArray *functionNames;
@end

typedef NS_ENUM(NSUInteger, MTLFunctionType) {
    MTLFunctionTypeVertex = 1,
    MTLFunctionTypeFragment = 2,
    MTLFunctionTypeKernel = 3,
    MTLFunctionTypeVisible = 5,
    MTLFunctionTypeIntersection = 6,
    MTLFunctionTypeMesh = 7,
    MTLFunctionTypeObject = 8,
};

@protocol MTLFunction <NSObject>
@property(copy) NSString *label;
@property(readonly) id<MTLDevice> device;
@property(readonly) MTLFunctionType functionType;
@property(readonly) NSString *name;
@property(readonly) NSDictionary *functionConstantsDictionary; /* by name */
@end

/* A scalar and its vectors. */
#define MTL_DATA_TYPES(name, value) \
    name = (value), name##2 = (value) + 1, name##3 = (value) + 2, name##4 = (value) + 3
typedef NS_ENUM(NSUInteger, MTLDataType) {
    MTLDataTypeNone = 0,
    MTLDataTypeStruct = 1,
    MTLDataTypeArray = 2,
    MTL_DATA_TYPES(MTLDataTypeFloat, 3),
    MTL_DATA_TYPES(MTLDataTypeHalf, 16),
    MTL_DATA_TYPES(MTLDataTypeInt, 29),
    MTL_DATA_TYPES(MTLDataTypeUInt, 33),
    MTL_DATA_TYPES(MTLDataTypeShort, 37),
    MTL_DATA_TYPES(MTLDataTypeUShort, 41),
    MTL_DATA_TYPES(MTLDataTypeChar, 45),
    MTL_DATA_TYPES(MTLDataTypeUChar, 49),
    MTL_DATA_TYPES(MTLDataTypeBool, 53),
    MTL_DATA_TYPES(MTLDataTypeLong, 81),
    MTL_DATA_TYPES(MTLDataTypeULong, 85),
    MTL_DATA_TYPES(MTLDataTypeBFloat, 121),
};
#undef MTL_DATA_TYPES

@interface MTLFunctionConstant : NSObject {
  @private
    NSString *_name; /* owned (+1) */
    MTLDataType _type;
    NSUInteger _index;
    BOOL _required;
}
@property(readonly) NSString *name;
@property(readonly) MTLDataType type;
@property(readonly) NSUInteger index;
@property(readonly) BOOL required;
@end

@interface MTLFunctionConstantValues : NSObject {
  @private
    void *_values;
}
- (void)setConstantValue:(const void *)value type:(MTLDataType)type atIndex:(NSUInteger)index;
@end

/* ---- pipelines, and what their arguments are ---- */

@interface MTLComputePipelineDescriptor : NSObject {
  @private
    NSString *_label;                 /* owned (+1) */
    id<MTLFunction> _computeFunction; /* owned (+1) */
}
@property(readwrite, nonatomic, copy) NSString *label;
@property(readwrite, nonatomic, retain) id<MTLFunction> computeFunction;
@end

@protocol MTLComputePipelineState <NSObject>
@property(readonly) NSString *label;
@property(readonly) id<MTLDevice> device;
@property(readonly) NSUInteger maxTotalThreadsPerThreadgroup;
@property(readonly) NSUInteger threadExecutionWidth;
@property(readonly) NSUInteger staticThreadgroupMemoryLength;
@end

typedef NS_ENUM(NSInteger, MTLBindingType) {
    MTLBindingTypeBuffer = 0,
    MTLBindingTypeThreadgroupMemory = 1,
    MTLBindingTypeTexture = 2,
    MTLBindingTypeSampler = 3,
};

typedef NS_ENUM(NSUInteger, MTLBindingAccess) {
    MTLBindingAccessReadOnly = 0,
    MTLBindingAccessReadWrite = 1,
    MTLBindingAccessWriteOnly = 2,
};

@protocol MTLBinding <NSObject>
@property(readonly) NSString *name;
@property(readonly) MTLBindingType type;
@property(readonly) MTLBindingAccess access;
@property(readonly) NSUInteger index;
@property(readonly, getter=isUsed) BOOL used;
@end

@protocol MTLBufferBinding <MTLBinding>
@property(readonly) NSUInteger bufferAlignment;
@property(readonly) NSUInteger bufferDataSize;
@property(readonly) MTLDataType bufferDataType;
@end

@protocol MTLThreadgroupBinding <MTLBinding>
@property(readonly) NSUInteger threadgroupMemoryAlignment;
@property(readonly) NSUInteger threadgroupMemoryDataSize;
@end

@protocol MTLTextureBinding <MTLBinding>
@property(readonly) MTLTextureType textureType;
@property(readonly) MTLDataType textureDataType;
@property(readonly, getter=isDepthTexture) BOOL depthTexture;
@property(readonly) NSUInteger arrayLength;
@end

@interface MTLComputePipelineReflection : NSObject {
  @private
    NSArray *_bindings; /* owned (+1) */
}
@property(readonly) NSArray *bindings;
@end

/* ---- queues and command buffers ---- */

typedef NS_OPTIONS(NSUInteger, MTLCommandBufferErrorOption) {
    MTLCommandBufferErrorOptionNone = 0,
    MTLCommandBufferErrorOptionEncoderExecutionStatus = 1 << 0,
};

@interface MTLCommandBufferDescriptor : NSObject {
  @private
    MTLCommandBufferErrorOption _errorOptions;
}
@property(readwrite, nonatomic) MTLCommandBufferErrorOption errorOptions;
@end

@protocol MTLCommandQueue <NSObject>
@property(copy) NSString *label;
@property(readonly) id<MTLDevice> device;
- (id<MTLCommandBuffer>)commandBufferWithDescriptor:(MTLCommandBufferDescriptor *)descriptor;
- (id<MTLCommandBuffer>)commandBuffer;
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences;
@end

typedef NS_ENUM(NSUInteger, MTLCommandBufferStatus) {
    MTLCommandBufferStatusNotEnqueued = 0,
    MTLCommandBufferStatusEnqueued = 1,
    MTLCommandBufferStatusCommitted = 2,
    MTLCommandBufferStatusScheduled = 3,
    MTLCommandBufferStatusCompleted = 4,
    MTLCommandBufferStatusError = 5,
};

typedef NS_ENUM(NSUInteger, MTLCommandBufferError) {
    MTLCommandBufferErrorNone = 0,
    MTLCommandBufferErrorInternal = 1,
    MTLCommandBufferErrorTimeout = 2,
    MTLCommandBufferErrorPageFault = 3,
    MTLCommandBufferErrorAccessRevoked = 4,
    MTLCommandBufferErrorNotPermitted = 7,
    MTLCommandBufferErrorOutOfMemory = 8,
    MTLCommandBufferErrorInvalidResource = 9,
    MTLCommandBufferErrorMemoryless = 10,
    MTLCommandBufferErrorDeviceRemoved = 11,
    MTLCommandBufferErrorStackOverflow = 12,
};

MTL_EXTERN NSErrorDomain const MTLCommandBufferErrorDomain;

/* What an error of a command buffer that was made with
 * MTLCommandBufferErrorOptionEncoderExecutionStatus has: an array of the next. */
MTL_EXTERN NSErrorUserInfoKey const MTLCommandBufferEncoderInfoErrorKey;

typedef NS_ENUM(NSInteger, MTLCommandEncoderErrorState) {
    MTLCommandEncoderErrorStateUnknown = 0,
    MTLCommandEncoderErrorStateCompleted = 1,
    MTLCommandEncoderErrorStateAffected = 2,
    MTLCommandEncoderErrorStatePending = 3,
    MTLCommandEncoderErrorStateFaulted = 4,
};

@protocol MTLCommandBufferEncoderInfo <NSObject>
@property(readonly) NSString *label;
@property(readonly) MTLCommandEncoderErrorState errorState;
@end

#if defined(__BLOCKS__)
typedef void (^MTLCommandBufferHandler)(id<MTLCommandBuffer>);
#else
typedef const void *MTLCommandBufferHandler;
#endif

@protocol MTLCommandBuffer <NSObject>
@property(readonly) id<MTLDevice> device;
@property(copy) NSString *label;
@property(readonly) CFTimeInterval kernelStartTime;
@property(readonly) CFTimeInterval GPUStartTime;
@property(readonly) CFTimeInterval GPUEndTime;
- (void)enqueue;
- (void)commit;
- (void)addScheduledHandler:(MTLCommandBufferHandler)block;
- (void)waitUntilScheduled;
- (void)addCompletedHandler:(MTLCommandBufferHandler)block;
- (void)waitUntilCompleted;
@property(readonly) MTLCommandBufferStatus status;
@property(readonly) NSError *error;
- (id<MTLBlitCommandEncoder>)blitCommandEncoder;
- (id<MTLComputeCommandEncoder>)computeCommandEncoder;
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value;
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value;
@end

/* ---- encoders ---- */

@protocol MTLCommandEncoder <NSObject>
@property(readonly) id<MTLDevice> device;
@property(copy) NSString *label;
- (void)endEncoding;
@end

#import <Metal/MTLBlitCommandEncoder.h>
#import <Metal/MTLComputeCommandEncoder.h>

/* ---- captures ---- */

MTL_EXTERN NSErrorDomain const MTLCaptureErrorDomain;

typedef NS_ENUM(NSInteger, MTLCaptureError) {
    MTLCaptureErrorNotSupported = 1,
    MTLCaptureErrorAlreadyCapturing = 2,
    MTLCaptureErrorInvalidDescriptor = 3,
};

typedef NS_ENUM(NSInteger, MTLCaptureDestination) {
    MTLCaptureDestinationDeveloperTools = 1,
    MTLCaptureDestinationGPUTraceDocument = 2,
};

@interface MTLCaptureDescriptor : NSObject {
  @private
    id _captureObject; /* owned (+1) */
    MTLCaptureDestination _destination;
    NSURL *_outputURL; /* owned (+1) */
}
@property(nonatomic, retain) id captureObject;
@property(nonatomic) MTLCaptureDestination destination;
@property(nonatomic, copy) NSURL *outputURL;
@end

@interface MTLCaptureManager : NSObject
+ (MTLCaptureManager *)sharedCaptureManager;
- (BOOL)supportsDestination:(MTLCaptureDestination)destination;
- (BOOL)startCaptureWithDescriptor:(MTLCaptureDescriptor *)descriptor error:(NSError **)error;
- (void)stopCapture;
@property(readonly) BOOL isCapturing;
@end

#endif /* SOFTMETAL_METAL_H */
