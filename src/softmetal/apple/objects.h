/* objects.h: the classes behind Metal's protocols, for the files of softmetal only.
 *
 * Owns:    declarations; each class says what it owns.
 * Calls:   the C parts: lane.h, program.h, soft_storage.h, event.h.
 * Threads: as the protocols say.
 */
#ifndef SOFT_OBJECTS_H
#define SOFT_OBJECTS_H

#import <Metal/Metal.h>

#include <objc/objc.h>
#include <pthread.h>
#include <stddef.h>

#include "softmetal/compiler.h"
#include "softmetal/gpu/event.h"
#include "softmetal/gpu/kernel.h"
#include "softmetal/gpu/lane.h"
#include "softmetal/gpu/pixels.h"
#include "softmetal/gpu/program.h"
#include "softmetal/gpu/soft_storage.h"

/* A number of a descriptor: GCC synthesizes setters that it then warns of. */
#define SOFT_ATTRIBUTE(type, name, Name) \
    -(type)name \
    { \
        return _##name; \
    } \
    -(void)set##Name : (type)value \
    { \
        _##name = value; \
    }

/* How what Foundation declares is made here. */
@interface NSError (SoftMetal)
- (instancetype)initWithDomain:(NSErrorDomain)domain
                          code:(NSInteger)code
                          text:(const char *)text
                      userInfo:(NSDictionary *)userInfo;
@end

@interface NSArray (SoftMetal)
- (instancetype)initWithObjects:(id *)objects count:(NSUInteger)count;
@end

@interface NSDictionary (SoftMetal)
- (instancetype)initWithObjects:(id *)objects forKeys:(NSString **)keys count:(NSUInteger)count;
@end

/* Where no options name one: as for a program that was built with an old SDK. */
#define SOFT_DEFAULT_LANGUAGE MTLLanguageVersion3_0

/* Volatile or empty: a command buffer may not name it. */
static inline BOOL
soft_storage_may_be_empty(const soft_storage *storage)
{
    int state = __atomic_load_n(&storage->purgeable, __ATOMIC_ACQUIRE);
    return state == MTLPurgeableStateVolatile || state == MTLPurgeableStateEmpty;
}

/* An object with a label, which any thread may read or change. */
@interface SoftMetalLabelled : NSObject {
  @private
    pthread_mutex_t _labelLock;
    NSString *_label; /* owned (+1) */
}
@property(copy) NSString *label;
@end

/* One object per GPU at a time; after the last release the next call makes a fresh one. */
@interface SoftMetalDevice : NSObject <MTLDevice> {
  @public
    unsigned _index;
    size_t *_account; /* bytes allocated on this GPU; lives for ever */
}
@end

static inline BOOL
soft_device_is_same(const SoftMetalDevice *one, const SoftMetalDevice *two)
{
    return one->_index == two->_index;
}

@interface SoftMetalBuffer : SoftMetalLabelled <MTLBuffer> {
  @public
    SoftMetalDevice *_device; /* owned (+1) */
    soft_storage *_storage;   /* owned (+1) */
    MTLResourceOptions _options;
    const void *_deallocator; /* owned: a copied block, or NULL */
}
/* Takes over `storage`. */
- (instancetype)initWithDevice:(SoftMetalDevice *)device
                       storage:(soft_storage *)storage
                       options:(MTLResourceOptions)options;
@end

/* Its bytes are a buffer's: of a linear texture somebody else's, of any other its own. */
@interface SoftMetalTexture : SoftMetalLabelled <MTLTexture> {
  @public
    SoftMetalBuffer *_memory; /* owned (+1) */
    soft_pixels *_pixels;     /* owned (+1) */
    BOOL _isLinear;
}
@end

@interface SoftMetalSampler : NSObject <MTLSamplerState> {
  @public
    SoftMetalDevice *_device; /* owned (+1) */
    soft_u64 _packed;
}
@end

/* Shared by linear textures of all formats; of Apple's GPUs in Macs.  SPEC dxmt issue 31 */
#define SOFT_LINEAR_ALIGNMENT 16

/* What a descriptor asks of a device, and where its pixels lie; NO after a report. */
BOOL soft_texture_describe(MTLTextureDescriptor *descriptor, soft_texture *as);
/* Each is +1, or nil: after a report, or where there is no memory.  The first takes over `memory`, which may be nil. */
SoftMetalTexture *soft_texture_make(SoftMetalBuffer *memory, const soft_texture *as,
                                    MTLTextureUsage usage);
SoftMetalTexture *soft_texture_make_linear(SoftMetalBuffer *buffer,
                                           MTLTextureDescriptor *descriptor, NSUInteger offset,
                                           NSUInteger row_nbytes);
SoftMetalSampler *soft_sampler_make(SoftMetalDevice *device, MTLSamplerDescriptor *descriptor);

@interface SoftMetalSignal : SoftMetalLabelled {
  @public
    SoftMetalDevice *_device; /* owned (+1) */
    soft_event *_event;       /* owned (+1); tells fences apart, which do not use its value */
}
@property(readonly) id<MTLDevice> device;
- (instancetype)initWithDevice:(SoftMetalDevice *)device;
@end

@interface SoftMetalEvent : SoftMetalSignal <MTLSharedEvent>
@end

@interface SoftMetalFence : SoftMetalSignal <MTLFence>
@end

@interface SoftMetalQueue : SoftMetalLabelled <MTLCommandQueue> {
  @public
    SoftMetalDevice *_device; /* owned (+1) */
    soft_lane *_lane;         /* owned (+1), shared with the worker */
}
- (instancetype)initWithDevice:(SoftMetalDevice *)device limit:(NSUInteger)limit;
@end

@class SoftMetalEncoder;

/* What becomes of one encoder: kept where somebody asks for it, by a descriptor or a capture. */
@interface SoftMetalEncoderInfo : SoftMetalLabelled <MTLCommandBufferEncoderInfo> {
  @public
    size_t _pass;
    MTLCommandEncoderErrorState _state;
}
@end

typedef struct soft_handlers {
    const void **blocks; /* copies, owned */
    size_t count;
} soft_handlers;

/* Its life, and what changes in it:
 *
 *     made -------> its queue counts it in flight
 *       |             _encoder: the one that is open; it writes the passes of _program
 *       |             _kept: what the GPU needs; _scheduledHandlers, _completedHandlers: copies
 *     enqueue ----> _slot has its place in the lane
 *       |
 *     commit -----> _order: what the CPU knows now; _injected: the error that a test asks for, or
 *       |             that memory is short (since it was encoded)
 *       |
 *     scheduled --> the worker runs _scheduledHandlers, then sets _isScheduled and the first
 *       |             two times
 *       |
 *     completed --> the worker sets _endTime, _error and _status, runs _completedHandlers,
 *     or error      lets go of _kept, sets _isFinished and wakes who waits
 */
@interface SoftMetalCommandBuffer : SoftMetalLabelled <MTLCommandBuffer> {
  @public
    SoftMetalQueue *_queue; /* owned (+1) */
    soft_lane *_lane;       /* borrowed from _queue */
    soft_slot _slot;        /* behind the lane's lock */
    BOOL _retains;
    soft_program _program;
    soft_race_work *_order;        /* owned; NULL: races are not watched */
    SoftMetalEncoder *_encoder;    /* borrowed: the one that is open */
    BOOL _tellsEncoders;           /* its error does */
    SoftMetalEncoderInfo **_infos; /* each owned (+1); of each encoder, or none */
    size_t _infoCount, _infoCapacity;
    id *_kept; /* each owned (+1) until completion */
    size_t _keptCount, _keptCapacity;
    soft_handlers _scheduledHandlers, _completedHandlers;
    MTLCommandBufferStatus _status; /* atomic */
    pthread_cond_t _changed;        /* who waits for it; behind the lane's lock, as all below */
    BOOL _isScheduled;              /* its scheduled handlers have run */
    BOOL _isFinished;               /* its completed handlers have run */
    int _injected;                  /* the code it has to end with, or 0 */
    NSError *_error;                /* owned (+1) */
    double _scheduleTime, _startTime, _endTime; /* seconds */
}
- (instancetype)initWithQueue:(SoftMetalQueue *)queue retains:(BOOL)retains;
/* Keep an object until completion, unless the buffer was made with unretained references. */
- (void)keepObject:(id)object;
/* Something could not be encoded: the work is left out, and ends with OutOfMemory. */
- (void)lackMemory;
/* The pass that the open encoder writes. */
- (soft_pass *)openPass;
- (void)setStatus:(MTLCommandBufferStatus)status;
- (void)runHandlers:(const soft_handlers *)handlers;
/* Give back everything it kept alive for the GPU. */
- (void)releaseKept;
/* `hasRun`: the GPU's work began, and did not come to its end. */
- (void)failWithCode:(NSInteger)code text:(const char *)text hasRun:(BOOL)hasRun;
@end

@interface SoftMetalEncoder : SoftMetalLabelled <MTLCommandEncoder> {
  @public
    SoftMetalCommandBuffer *_commandBuffer; /* owned (+1) */
    SoftMetalEncoderInfo *_info;            /* borrowed from it; nil: nobody asks */
    BOOL _isEnded;
    void *_lastCaller;               /* who encoded the last command */
    const soft_call_site *_lastSite; /* ... and its stack; borrowed for ever */
}
- (instancetype)initWithCommandBuffer:(SoftMetalCommandBuffer *)commandBuffer;
/* NO, after a report, if the encoder has ended. */
- (BOOL)isOpenFor:(const char *)method;
/* The storage of a buffer of this device, which the command buffer keeps from here on; NULL after
 * a report. */
- (soft_storage *)storageOf:(id)buffer for:(const char *)method;
/* The same for a texture: borrowed. */
- (soft_pixels *)pixelsOf:(id)texture for:(const char *)method;
- (void)addCommand:(soft_command)command;
- (void)noteFence:(id)fence isUpdated:(BOOL)isUpdated for:(const char *)method;
@end

@interface SoftMetalBlitEncoder : SoftMetalEncoder <MTLBlitCommandEncoder>
@end

@interface SoftMetalComputeEncoder : SoftMetalEncoder <MTLComputeCommandEncoder> {
  @private
    soft_dispatch
        *_dispatch; /* owned: what the next one takes; its kernel's image is borrowed */
    BOOL _hasPipeline;
}
@end

/* Values of function constants. */
typedef struct soft_constant_list {
    size_t count;
    soft_constant_value values[];
} soft_constant_list;

@interface MTLFunctionConstantValues (SoftMetal)
- (const soft_constant_list *)softValues; /* borrowed; NULL: none */
@end

@interface MTLFunctionConstant (SoftMetal)
- (instancetype)initWithFacts:(const soft_constant_facts *)facts;
@end

@interface SoftMetalLibrary : SoftMetalLabelled <MTLLibrary> {
  @public
    SoftMetalDevice *_device;            /* owned (+1) */
    char *_source;                       /* owned */
    unsigned _language;                  /* MTLLanguageVersion */
    const softmetal_compiler *_compiler; /* which opened it; borrowed for ever */
    soft_functions *_functions;          /* owned; NULL: its kernels are registered ones */
}
- (instancetype)initWithDevice:(SoftMetalDevice *)device
                        source:(NSString *)source
                      language:(MTLLanguageVersion)language;
/* Compile it, if that is to be done; NO with an error. */
- (BOOL)open:(NSError **)error;
@end

@interface SoftMetalFunction : SoftMetalLabelled <MTLFunction> {
  @public
    SoftMetalLibrary *_library;        /* owned (+1) */
    soft_kernel _kernel;               /* in C, or nothing */
    const soft_function_facts *_facts; /* borrowed from _library; NULL: it is in C */
    soft_constant_list *_values;       /* owned; NULL: none */
}
- (instancetype)initWithLibrary:(SoftMetalLibrary *)library
                         kernel:(soft_kernel)kernel
                          facts:(const soft_function_facts *)facts
                         values:(const soft_constant_list *)values;
/* Its image: owned (+1), or NULL with an error. */
- (soft_loaded_image *)compileForCounting:(BOOL)isCounting error:(NSError **)error;
@end

@interface SoftMetalPipeline : SoftMetalLabelled <MTLComputePipelineState> {
  @public
    SoftMetalDevice *_device; /* owned (+1) */
    soft_kernel _kernel;      /* its image is owned (+1) */
}
- (instancetype)initWithFunction:(SoftMetalFunction *)function error:(NSError **)error;
- (MTLComputePipelineReflection *)reflect;
@end

/* ---- residency ---- */

extern int soft_gpu_has_worked; /* atomic */

@interface SoftMetalResidencySet : NSObject <MTLResidencySet> {
  @public
    SoftMetalResidencySet *_next; /* borrowed */
    size_t _stagedNbytes, _nbytes;
    uint64_t _until_ns; /* 0: not resident */
    BOOL _wasRequested;
}
@end

/* ---- captures ---- */

extern int soft_capture_is_on; /* atomic */
/* A command buffer is committed while a capture is on: its name, and that of each encoder. */
void soft_capture_write(SoftMetalCommandBuffer *commands);

/* An error of MTLLibraryErrorDomain. */
void soft_error_set(NSError **error, NSInteger code, const char *text);

/* True if the queue has its worker, started for its first command buffer.  False: no thread is to
 * be had. */
BOOL soft_worker_exists(soft_lane *lane);

/* ---- the calling thread's stack of autoreleased objects ---- */

size_t soft_autorelease_push(void); /* opens a pool; what soft_autorelease_pop wants */
void soft_autorelease_pop(size_t pool);

#endif /* SOFT_OBJECTS_H */
