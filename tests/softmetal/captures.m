/* captures.m: GPU traces. */
#import "check.h"

#include <libgen.h>
#include <unistd.h>

CASE(a_capture_is_of_one_folder_that_is_not_there_and_only_where_it_is_enabled)
{
    char folder[] = P_tmpdir "/softmetal-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/one.gputrace", folder);
    MTLCaptureManager *manager = [MTLCaptureManager sharedCaptureManager];
    MTLCaptureDescriptor *descriptor = [[[MTLCaptureDescriptor alloc] init] autorelease];
    NSError *error = nil;
    [descriptor setCaptureObject:open_device()];
    [descriptor setDestination:MTLCaptureDestinationGPUTraceDocument];
    [descriptor setOutputURL:[NSURL fileURLWithPath:[NSString stringWithUTF8String:path]]];
    unsetenv("METAL_CAPTURE_ENABLED");
    CHECK(![manager supportsDestination:MTLCaptureDestinationGPUTraceDocument]);
    CHECK(![manager startCaptureWithDescriptor:descriptor error:&error]);
    CHECK([error code] == MTLCaptureErrorNotSupported);
    setenv("METAL_CAPTURE_ENABLED", "1", 1);
    CHECK([manager startCaptureWithDescriptor:descriptor error:&error]);
    CHECK([manager isCapturing] && ![manager startCaptureWithDescriptor:descriptor
                                                                  error:&error]);
    CHECK([error code] == MTLCaptureErrorAlreadyCapturing);
    [manager stopCapture];
    CHECK(![manager isCapturing]);
    CHECK(![manager startCaptureWithDescriptor:descriptor error:&error]);
    CHECK([error code] == MTLCaptureErrorInvalidDescriptor);
    snprintf(path, sizeof path, "%s/one.gputrace/commands.txt", folder);
    CHECK(unlink(path) == 0 && rmdir(dirname(path)) == 0 && rmdir(folder) == 0);
}
