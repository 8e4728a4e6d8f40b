/* command_buffer.m: MTLCommandBuffer: its states, its handlers, what it keeps alive.
 *
 * Owns:      its queue, its program, the objects it keeps until completion, copies of handlers.
 * Calls:     lane.h, program.h, block.h, validation.h.
 * Threads:   encoded by one thread at a time; the state is behind the lane's lock.
 * Invariant: in its lane from enqueue until the worker takes it; owned (+1) by the worker from
 *            commit until `_isFinished`.
 */
#import "softmetal/apple/objects.h"

#include <stdlib.h>

#include <objc/runtime.h>

#include "softmetal/apple/block.h"
#include "softmetal/apple/object_list.h"
#include "softmetal/apple/process.h"
#include "softmetal/call_site.h"
#include "softmetal/failure.h"
#include "softmetal/host.h"
#include "softmetal/validation.h"

#define LOOK_BACK 8 /* how many kept objects are compared before one is kept twice */

@implementation SoftMetalCommandBuffer

- (instancetype)initWithQueue:(SoftMetalQueue *)queue retains:(BOOL)retains
{
    self = [super init];
    _queue = [queue retain];
    _lane = queue->_lane;
    _slot.owner = self;
    _retains = retains;
    pthread_cond_init(&_changed, NULL);
    return self;
}

- (void)dealloc
{
    if (!soft_process_is_forked()) {
        pthread_mutex_lock(&_lane->lock);
        if (_slot.is_placed) {
            soft_lane_remove(_lane, &_slot);
            pthread_cond_signal(&_lane->work); /* the next one may be committed */
        }
        pthread_mutex_unlock(&_lane->lock);
        if (!_isFinished) {
            soft_lane_leave(_lane);
        }
        pthread_cond_destroy(&_changed);
    }
    [self releaseKept];
    for (size_t index = 0; index < _infoCount; index++) {
        [_infos[index] release];
    }
    free(_infos);
    free(_order);
    [_error release];
    [_queue release];
    [super dealloc];
}

static void
release_handlers(soft_handlers *handlers)
{
    for (size_t index = 0; index < handlers->count; index++) {
        soft_block_release(handlers->blocks[index]);
    }
    free(handlers->blocks);
    *handlers = (soft_handlers){0};
}

- (void)releaseKept
{
    soft_program_clear(&_program);
    for (size_t index = 0; index < _keptCount; index++) {
        [_kept[index] release];
    }
    free(_kept);
    _kept = NULL;
    _keptCount = _keptCapacity = 0;
    release_handlers(&_scheduledHandlers);
    release_handlers(&_completedHandlers);
}

- (void)keepObject:(id)object
{
    if (!_retains) {
        return;
    }
    for (size_t back = 1; back <= LOOK_BACK && back <= _keptCount; back++) {
        if (_kept[_keptCount - back] == object) {
            return;
        }
    }
    if (!soft_grow((void **)&_kept, _keptCount, &_keptCapacity, sizeof *_kept)) {
        [self lackMemory];
        return;
    }
    _kept[_keptCount] = [object retain];
    _keptCount += 1;
}

- (void)lackMemory
{
    _injected = MTLCommandBufferErrorOutOfMemory;
}

- (soft_pass *)openPass
{
    return &_program.passes[_program.pass_count - 1];
}

- (id<MTLDevice>)device
{
    return _queue->_device;
}

- (MTLCommandBufferStatus)status
{
    MTLCommandBufferStatus status = __atomic_load_n(&_status, __ATOMIC_ACQUIRE);
    if (soft_process_is_forked() && status < MTLCommandBufferStatusCompleted) {
        return MTLCommandBufferStatusError; /* nobody here will ever run it */
    }
    if (status >= MTLCommandBufferStatusCompleted) {
        soft_races_cpu_waited_for_work(_order);
    }
    return status;
}

- (void)setStatus:(MTLCommandBufferStatus)status
{
    __atomic_store_n(&_status, status, __ATOMIC_RELEASE);
}

- (NSError *)error
{
    if (soft_process_is_forked()) {
        return [[[NSError alloc] initWithDomain:MTLCommandBufferErrorDomain
                                           code:MTLCommandBufferErrorNotPermitted
                                           text:"Metal does not work in a child of fork()."
                                       userInfo:nil] autorelease];
    }
    pthread_mutex_lock(&_lane->lock);
    NSError *error = [_error retain];
    pthread_mutex_unlock(&_lane->lock);
    return [error autorelease];
}

/* +1; nil: nobody has asked.  What is injected stops the first encoder: nothing ran. */
- (NSDictionary *)copyEncoders:(BOOL)hasRun
{
    NSString *key = MTLCommandBufferEncoderInfoErrorKey;
    MTLCommandEncoderErrorState next = MTLCommandEncoderErrorStateCompleted;
    BOOL knows = NO;
    if (!_tellsEncoders) {
        return nil;
    }
    for (size_t index = 0; index < _program.pass_count; index++) {
        knows |= _program.passes[index].has_failed;
    }
    for (size_t index = 0; index < _infoCount; index++) {
        BOOL fails = knows ? _program.passes[_infos[index]->_pass].has_failed : index == 0;
        _infos[index]->_state = !fails   ? next
                                : hasRun ? MTLCommandEncoderErrorStateFaulted
                                         : MTLCommandEncoderErrorStateAffected;
        next = fails ? MTLCommandEncoderErrorStatePending : next;
    }
    NSArray *infos = [[NSArray alloc] initWithObjects:(id *)_infos count:_infoCount];
    NSDictionary *userInfo = [[NSDictionary alloc] initWithObjects:(id *)&infos
                                                           forKeys:&key
                                                             count:1];
    [infos release];
    return userInfo;
}

- (void)failWithCode:(NSInteger)code text:(const char *)text hasRun:(BOOL)hasRun
{
    NSDictionary *userInfo = [self copyEncoders:hasRun];
    NSError *error = [[NSError alloc] initWithDomain:MTLCommandBufferErrorDomain
                                                code:code
                                                text:text
                                            userInfo:userInfo];
    [userInfo release];
    pthread_mutex_lock(&_lane->lock);
    NSError *before = _error;
    _error = error;
    pthread_mutex_unlock(&_lane->lock);
    [before release];
}

static double
read_time(soft_lane *lane, const double *time)
{
    pthread_mutex_lock(&lane->lock);
    double read = *time;
    pthread_mutex_unlock(&lane->lock);
    return read;
}

- (CFTimeInterval)kernelStartTime
{
    return read_time(_lane, &_scheduleTime);
}

- (CFTimeInterval)GPUStartTime
{
    return read_time(_lane, &_startTime);
}

- (CFTimeInterval)GPUEndTime
{
    return read_time(_lane, &_endTime);
}

/* NO, after a report, once the buffer is committed or while an encoder is open. */
- (BOOL)isOpenFor:(const char *)method
{
    return SOFT_DEMAND([self status] < MTLCommandBufferStatusCommitted,
                       SOFT_REPORT_COMMIT_ENCODING,
                       "-[MTLCommandBuffer %s]: the command buffer is already committed.",
                       method) &&
           SOFT_DEMAND(_encoder == nil, SOFT_REPORT_SECOND_ENCODER,
                       "-[MTLCommandBuffer %s]: a command encoder is already encoding to this "
                       "command buffer.",
                       method);
}

- (void)enqueue
{
    if (soft_process_is_forked()) {
        return;
    }
    BOOL fresh = NO;
    pthread_mutex_lock(&_lane->lock);
    if (_status == MTLCommandBufferStatusNotEnqueued) {
        soft_lane_place(_lane, &_slot);
        __atomic_store_n(&_status, MTLCommandBufferStatusEnqueued, __ATOMIC_RELEASE);
        fresh = YES;
    }
    pthread_mutex_unlock(&_lane->lock);
    (void)SOFT_DEMAND(fresh, SOFT_REPORT_COMMIT_ENCODING,
                      "-[MTLCommandBuffer enqueue]: the command buffer is already enqueued.");
}

/* Report the buffers that may not be named at commit: dead, volatile or empty ones. */
- (void)checkBoundStorage
{
    char label[SOFT_LABEL_SIZE];
    for (size_t index = 0; index < _program.bound_count; index++) {
        soft_storage *storage = _program.bound[index];
        (void)SOFT_DEMAND(!__atomic_load_n(&storage->is_orphan, __ATOMIC_ACQUIRE),
                          SOFT_REPORT_DEAD_AT_COMMIT,
                          "-[MTLCommandBuffer commit]: the command buffer references a "
                          "deallocated object, the buffer \"%s\" (%zu bytes, made at %s).",
                          soft_storage_copy_label(storage, label), storage->nbytes,
                          storage->made_at != NULL ? storage->made_at : "?");
        (void)SOFT_DEMAND(!soft_storage_may_be_empty(storage), SOFT_REPORT_PURGEABLE,
                          "-[MTLCommandBuffer commit]: the buffer \"%s\" (%zu bytes) is in a "
                          "volatile or empty purgeable state at commit.",
                          soft_storage_copy_label(storage, label), storage->nbytes);
    }
}

- (void)commit
{
    if (soft_process_is_forked()) {
        soft_validation_report(SOFT_REPORT_FORK,
                               "-[MTLCommandBuffer commit] in a child of fork().");
        return;
    }
    if (!SOFT_DEMAND(_encoder == nil, SOFT_REPORT_COMMIT_ENCODING,
                     "-[MTLCommandBuffer commit] while an encoder is encoding.") ||
        ![self isOpenFor:"commit"]) {
        return;
    }
    [self checkBoundStorage];
    if (__atomic_load_n(&soft_capture_is_on, __ATOMIC_RELAXED)) {
        soft_capture_write(self);
    }
    if (!soft_failure_strikes(SOFT_FAIL_COMMAND, &_injected) &&
        soft_failure_devices_are_removed()) {
        _injected = MTLCommandBufferErrorDeviceRemoved;
    }
    _program.order = _order = soft_race_work_new();
    soft_program_begin(&_program);
    soft_process_count_work(1);
    [self retain]; /* the worker's, from here to `_isFinished` */
    pthread_mutex_lock(&_lane->lock);
    if (!_slot.is_placed) {
        soft_lane_place(_lane, &_slot);
    }
    _slot.is_committed = true;
    __atomic_store_n(&_status, MTLCommandBufferStatusCommitted, __ATOMIC_RELEASE);
    pthread_cond_signal(&_lane->work);
    pthread_mutex_unlock(&_lane->lock);
}

/* To wait before commit may be to wait for ever. */
- (BOOL)isCommittedFor:(const char *)method
{
    return SOFT_DEMAND([self status] >= MTLCommandBufferStatusCommitted,
                       SOFT_REPORT_COMMIT_ENCODING, "-[MTLCommandBuffer %s] before commit.",
                       method);
}

- (void)waitFor:(const BOOL *)flag
{
    pthread_mutex_lock(&_lane->lock);
    while (!*flag) {
        pthread_cond_wait(&_changed, &_lane->lock);
    }
    pthread_mutex_unlock(&_lane->lock);
}

- (void)waitUntilScheduled
{
    if (!soft_process_is_forked() && [self isCommittedFor:"waitUntilScheduled"]) {
        [self waitFor:&_isScheduled];
    }
}

- (void)waitUntilCompleted
{
    if (!soft_process_is_forked() && [self isCommittedFor:"waitUntilCompleted"]) {
        [self waitFor:&_isFinished];
        soft_races_cpu_waited_for_work(_order);
    }
}

- (void)addHandler:(const void *)block to:(soft_handlers *)handlers for:(const char *)method
{
    if (block == NULL || !SOFT_DEMAND([self status] < MTLCommandBufferStatusCommitted,
                                      SOFT_REPORT_COMMIT_ENCODING,
                                      "-[MTLCommandBuffer %s] after commit.", method)) {
        return;
    }
    const void **larger = realloc(handlers->blocks, (handlers->count + 1) * sizeof *larger);
    const void *copy = soft_block_copy(block);
    if (larger == NULL || copy == NULL) {
        soft_end_without_memory("a handler, for whose call somebody will wait");
    }
    larger[handlers->count] = copy;
    *handlers = (soft_handlers){larger, handlers->count + 1};
}

- (void)addScheduledHandler:(MTLCommandBufferHandler)block
{
    [self addHandler:block to:&_scheduledHandlers for:"addScheduledHandler:"];
}

- (void)addCompletedHandler:(MTLCommandBufferHandler)block
{
    [self addHandler:block to:&_completedHandlers for:"addCompletedHandler:"];
}

- (void)runHandlers:(const soft_handlers *)handlers
{
    for (size_t index = 0; index < handlers->count; index++) {
        soft_block_call(handlers->blocks[index], self);
    }
}

/* Borrowed; nil: nobody asks, or there is no memory. */
- (SoftMetalEncoderInfo *)addInfo
{
    if ((!_tellsEncoders && !__atomic_load_n(&soft_capture_is_on, __ATOMIC_RELAXED)) ||
        !soft_grow((void **)&_infos, _infoCount, &_infoCapacity, sizeof(id))) {
        return nil;
    }
    SoftMetalEncoderInfo *info = [[SoftMetalEncoderInfo alloc] init];
    if (info == nil) {
        return nil;
    }
    info->_pass = _program.pass_count - 1;
    _infos[_infoCount] = info;
    _infoCount += 1;
    return info;
}

- (SoftMetalEncoder *)makeEncoder:(Class)encoderClass for:(const char *)method
{
    if (soft_process_is_forked() || ![self isOpenFor:method] ||
        soft_failure_strikes(SOFT_FAIL_ENCODER, NULL)) {
        return nil;
    }
    if (soft_program_add_pass(&_program, SOFT_PASS_ENCODER) == NULL) {
        return nil;
    }
    _encoder = [[[encoderClass alloc] initWithCommandBuffer:self] autorelease];
    if (_encoder != nil) {
        _encoder->_info = [self addInfo];
    }
    return _encoder;
}

- (id<MTLBlitCommandEncoder>)blitCommandEncoder
{
    SOFT_CALLED();
    return (id)[self makeEncoder:[SoftMetalBlitEncoder class] for:"blitCommandEncoder"];
}

- (id<MTLComputeCommandEncoder>)computeCommandEncoder
{
    SOFT_CALLED();
    return (id)[self makeEncoder:[SoftMetalComputeEncoder class] for:"computeCommandEncoder"];
}

- (void)encodePass:(soft_pass_kind)kind
             event:(id)object
             value:(uint64_t)value
               for:(const char *)method
{
    if (soft_process_is_forked() || ![self isOpenFor:method] ||
        !SOFT_DEMAND([object isKindOfClass:[SoftMetalEvent class]], SOFT_REPORT_ARGUMENT,
                     "-[MTLCommandBuffer %s]: the event is %s.", method,
                     object == nil ? "nil" : "no MTLSharedEvent")) {
        return;
    }
    [self keepObject:object];
    if (!soft_program_add_event(&_program, kind, ((SoftMetalEvent *)object)->_event, value)) {
        [self lackMemory];
    }
}

- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value
{
    [self encodePass:SOFT_PASS_WAIT event:event value:value for:"encodeWaitForEvent:value:"];
}

- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value
{
    [self encodePass:SOFT_PASS_SIGNAL event:event value:value for:"encodeSignalEvent:value:"];
}

/* In here to reach the program: no message, for Metal has none that it could be. */
void
softmetal_host_encoded(const void *commands)
{
    SoftMetalCommandBuffer *buffer = (SoftMetalCommandBuffer *)commands;
    if (soft_races_are_watched() && buffer->_program.pass_count > 0) {
        soft_races_encoded([buffer openPass]);
    }
}

void
softmetal_host_gave(const void *commands, const softmetal_given *given)
{
    SoftMetalCommandBuffer *buffer = (SoftMetalCommandBuffer *)commands;
    const soft_pass *pass = buffer->_program.pass_count == 0 ? NULL : [buffer openPass];
    soft_dispatch *dispatch = pass == NULL || pass->command_count == 0
                                  ? NULL
                                  : pass->commands[pass->command_count - 1].dispatch;
    const soft_loaded_image *image = dispatch == NULL ? NULL : dispatch->kernel.image;
    if (image != NULL && image->image->is_checked) {
        soft_dispatch_gave(dispatch, given);
    }
}

@end
