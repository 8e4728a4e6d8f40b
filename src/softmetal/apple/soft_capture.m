/* soft_capture.m: MTLCaptureManager: a folder with the names of what was committed, in order.
 *
 * Owns:    the file, while a capture is on.
 * Calls:   objects.h.
 * Threads: any; one lock is round the file.
 * Note:    as on a Mac, only where METAL_CAPTURE_ENABLED is 1.
 */
#import "softmetal/apple/objects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TRACE_FILE "commands.txt"

int soft_capture_is_on;

static pthread_mutex_t file_lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *file; /* NULL: no capture is on */

static const char *
text_of(NSString *label)
{
    return label == nil ? "" : [label UTF8String];
}

void
soft_capture_write(SoftMetalCommandBuffer *commands)
{
    pthread_mutex_lock(&file_lock);
    if (file != NULL) {
        fprintf(file, "command buffer \"%s\"\n", text_of([commands label]));
        for (size_t index = 0; index < commands->_infoCount; index++) {
            fprintf(file, "    encoder \"%s\"\n", text_of([commands->_infos[index] label]));
        }
    }
    pthread_mutex_unlock(&file_lock);
}

@implementation SoftMetalEncoderInfo

- (MTLCommandEncoderErrorState)errorState
{
    return _state;
}

@end

@implementation MTLCaptureDescriptor

- (void)dealloc
{
    [_captureObject release];
    [_outputURL release];
    [super dealloc];
}

- (id)captureObject
{
    return _captureObject;
}

- (void)setCaptureObject:(id)captureObject
{
    id before = _captureObject;
    _captureObject = [captureObject retain];
    [before release];
}

- (MTLCaptureDestination)destination
{
    return _destination;
}

- (void)setDestination:(MTLCaptureDestination)destination
{
    _destination = destination;
}

- (NSURL *)outputURL
{
    return _outputURL;
}

- (void)setOutputURL:(NSURL *)outputURL
{
    NSURL *before = _outputURL;
    _outputURL = [outputURL copy];
    [before release];
}

@end

@implementation MTLCaptureManager

+ (MTLCaptureManager *)sharedCaptureManager
{
    return [[[self alloc] init] autorelease]; /* it has no state of its own */
}

- (BOOL)supportsDestination:(MTLCaptureDestination)destination
{
    const char *enabled = getenv("METAL_CAPTURE_ENABLED");
    return destination == MTLCaptureDestinationGPUTraceDocument && enabled != NULL &&
           strcmp(enabled, "1") == 0;
}

/* 0, or what is wrong. */
static MTLCaptureError
open_trace(MTLCaptureDescriptor *descriptor)
{
    const char *folder = [[descriptor outputURL] fileSystemRepresentation];
    char path[4096];
    if (file != NULL) {
        return MTLCaptureErrorAlreadyCapturing;
    }
    if (folder == NULL || [descriptor captureObject] == nil ||
        snprintf(path, sizeof path, "%s/" TRACE_FILE, folder) >= (int)sizeof path ||
        mkdir(folder, 0777) != 0) {
        return MTLCaptureErrorInvalidDescriptor;
    }
    file = fopen(path, "w");
    return file == NULL ? MTLCaptureErrorInvalidDescriptor : 0;
}

- (BOOL)startCaptureWithDescriptor:(MTLCaptureDescriptor *)descriptor error:(NSError **)error
{
    MTLCaptureError code = MTLCaptureErrorNotSupported;
    if ([self supportsDestination:[descriptor destination]]) {
        pthread_mutex_lock(&file_lock);
        code = open_trace(descriptor);
        __atomic_store_n(&soft_capture_is_on, file != NULL, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&file_lock);
    }
    if (code != 0 && error != NULL) {
        char text[80];
        snprintf(text, sizeof text, "The capture did not start (MTLCaptureError, %ld).",
                 (long)code);
        *error = [[[NSError alloc] initWithDomain:MTLCaptureErrorDomain
                                             code:code
                                             text:text
                                         userInfo:nil] autorelease];
    }
    return code == 0;
}

- (void)stopCapture
{
    pthread_mutex_lock(&file_lock);
    if (file != NULL) {
        (void)fclose(file);
        file = NULL;
    }
    __atomic_store_n(&soft_capture_is_on, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&file_lock);
}

- (BOOL)isCapturing
{
    return __atomic_load_n(&soft_capture_is_on, __ATOMIC_RELAXED) != 0;
}

@end
