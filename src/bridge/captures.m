/* captures.m: MTLCaptureManager: one GPU trace at a time. */
#import "bridge/parts.h"

static bridge_status
begin_capture(MTLCaptureManager *manager, bridge_device *device, const char *path,
              char **message)
{
    NSString *text = [NSString stringWithUTF8String:path];
    NSError *failure = nil;
    if (![manager supportsDestination:MTLCaptureDestinationGPUTraceDocument]) {
        return BRIDGE_NO_CAPTURE;
    }
    if ([manager isCapturing]) {
        return BRIDGE_CAPTURING;
    }
    MTLCaptureDescriptor *descriptor = [[MTLCaptureDescriptor alloc] init];
    [descriptor setCaptureObject:device_object(device)];
    [descriptor setDestination:MTLCaptureDestinationGPUTraceDocument];
    [descriptor setOutputURL:text == nil ? nil : [NSURL fileURLWithPath:text]];
    bool begins = [manager startCaptureWithDescriptor:descriptor error:&failure];
    [descriptor release];
    if (!begins) {
        const char *words = [[failure localizedDescription] UTF8String];
        *message = words == NULL ? NULL : strdup(words);
    }
    return begins ? BRIDGE_OK : BRIDGE_NO_TRACE;
}

bridge_status
bridge_capture_begin(bridge_device *device, const char *path, char **message)
{
    *message = NULL;
    if (bridge_is_forked()) {
        return BRIDGE_FORKED;
    }
    IN_POOL;
    return begin_capture([MTLCaptureManager sharedCaptureManager], device, path, message);
}

void
bridge_capture_end(void)
{
    if (bridge_is_forked()) {
        return;
    }
    IN_POOL;
    MTLCaptureManager *manager = [MTLCaptureManager sharedCaptureManager];
    if ([manager isCapturing]) { /* nobody else has ended it */
        [manager stopCapture];
    }
}
