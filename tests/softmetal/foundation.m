/* foundation.m: counting, pools, strings: what Metal code takes from Foundation. */
#import "check.h"

#include <errno.h>

#include "softmetal/apple/object_list.h"

CASE(new_gives_one_reference_and_release_takes_it)
{
    NSObject *object = [NSObject new];
    CHECK([object retainCount] == 1);
    CHECK([object retain] == object);
    CHECK([object retainCount] == 2);
    [object release];
    CHECK(softmetal_live_objects("NSObject") >= 1);
    size_t before = softmetal_live_objects(NULL);
    [object release];
    CHECK(softmetal_live_objects(NULL) == before - 1);
}

CASE(a_pool_releases_what_was_autoreleased_in_it)
{
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    NSObject *object = [[NSObject new] autorelease];
    [object retain];
    CHECK([object retainCount] == 2);
    [pool drain];
    CHECK([object retainCount] == 1);
    [object release];
}

CASE(pools_nest_and_the_outer_one_closes_the_inner_one)
{
    size_t before = softmetal_live_objects("NSString");
    NSAutoreleasePool *outer = [[NSAutoreleasePool alloc] init];
    NSString *kept = [NSString stringWithUTF8String:"outer"];
    NSAutoreleasePool *inner = [[NSAutoreleasePool alloc] init];
    [NSString stringWithUTF8String:"inner"];
    CHECK(softmetal_live_objects("NSString") == before + 2);
    [inner drain];
    CHECK(softmetal_live_objects("NSString") == before + 1);
    CHECK([kept length] == 5);
    [outer release]; /* the same as drain */
    CHECK(softmetal_live_objects("NSString") == before);
}

static void *
autorelease_without_pool(void *argument)
{
    (void)argument;
    [[NSObject new] autorelease];
    return NULL;
}

LEAKY_CASE(an_object_autoreleased_with_no_pool_leaks_and_is_counted)
{
    run_threads(1, autorelease_without_pool);
    CHECK(softmetal_autoreleased_without_pool() == 1);
}

LEAKY_REPORTS("missing-pool", another_thread_has_no_pool)
{
    run_threads(1, autorelease_without_pool);
}

static void *
leave_pool_open(void *argument)
{
    (void)argument;
    [[NSAutoreleasePool alloc] init];
    [[NSObject new] autorelease];
    return NULL;
}

LEAKY_CASE(a_thread_that_ends_releases_what_its_open_pools_hold)
{
    size_t before = softmetal_live_objects(NULL);
    run_threads(1, leave_pool_open);
    CHECK(softmetal_live_objects(NULL) == before + 1); /* the pool object itself */
    CHECK(softmetal_live_objects("NSAutoreleasePool") == 2);
}

CASE(strings_count_utf16_units)
{
    NSString *string = [NSString stringWithUTF8String:"a\xc3\xa4\xf0\x9d\x84\x9e"];
    CHECK([string length] == 4);
    CHECK(strcmp([string UTF8String], "a\xc3\xa4\xf0\x9d\x84\x9e") == 0);
    CHECK([string isEqual:[NSString stringWithUTF8String:[string UTF8String]]]);
    CHECK([string hash] == [[NSString stringWithUTF8String:[string UTF8String]] hash]);
    CHECK([string hash] != [[NSString stringWithUTF8String:"a"] hash]);
    CHECK(![string isEqual:[[NSObject new] autorelease]]);
}

CASE(the_error_domain_is_a_string_that_needs_no_pool)
{
    CHECK(strcmp([MTLCommandBufferErrorDomain UTF8String], "MTLCommandBufferErrorDomain") == 0);
    [MTLCommandBufferErrorDomain release];
    CHECK([[MTLCommandBufferErrorDomain retain] length] == 27);
}

CASE(objects_know_their_class_and_protocols)
{
    id<MTLDevice> device = open_device();
    id<MTLBuffer> buffer = [device newBufferWithLength:64 options:0];
    CHECK([buffer conformsToProtocol:@protocol(MTLBuffer)]);
    CHECK([buffer conformsToProtocol:@protocol(MTLResource)]);
    CHECK(![buffer conformsToProtocol:@protocol(MTLDevice)]);
    CHECK([buffer respondsToSelector:@selector(setPurgeableState:)]);
    CHECK([buffer isKindOfClass:[NSObject class]]);
    CHECK(softmetal_live_objects("MTLBuffer") == 1);
    CHECK(softmetal_live_objects("MTLResource") == 1);
    [buffer release];
    CHECK(softmetal_live_objects("MTLBuffer") == 0);
}

struct visit {
    int buffers, with_site;
    const void *seen;
};

static void
look_at(const char *class_name, const void *object, long retain_count, const char *site,
        void *context)
{
    struct visit *visit = context;
    visit->buffers += strstr(class_name, "Buffer") != NULL && retain_count == 2;
    visit->with_site += strstr(site, "+0x") != NULL;
    visit->seen = object;
    CHECK(pthread_mutex_trylock(&soft_object_list_mutex) == EBUSY); /* so no object ends */
}

CASE(living_objects_can_be_visited_with_the_place_that_made_them)
{
    id<MTLDevice> device = open_device();
    id<MTLBuffer> buffer = [[device newBufferWithLength:64 options:0] retain];
    struct visit visit = {0};
    softmetal_visit_live_objects("MTLBuffer", look_at, &visit);
    CHECK(visit.buffers == 1 && visit.seen == (const void *)buffer);
    CHECK(visit.with_site == (getenv("SOFTMETAL_VALIDATION") != NULL));
    [buffer release];
    [buffer release];
}

CASE(reset_reads_the_environment_again)
{
    id<MTLDevice> device = open_device();
    CHECK(softmetal_set("SOFTMETAL_MAX_BUFFER_LENGTH", "8K") == 0);
    CHECK([device maxBufferLength] == 8192);
    softmetal_reset();
    CHECK([device maxBufferLength] == (NSUInteger)32 << 30);
}

CASE(the_last_report_can_be_read_and_forgotten)
{
    char text[256];
    softmetal_set("SOFTMETAL_VALIDATION", "1");
    softmetal_set("SOFTMETAL_VALIDATION_MODE", "log");
    id<MTLDevice> device = open_device();
    [device newBufferWithLength:0 options:0];
    CHECK(softmetal_reports("zero-length") == 1 && softmetal_reports(NULL) == 1);
    CHECK(softmetal_last_report(text, sizeof text) < sizeof text);
    CHECK(strstr(text, "softmetal: zero-length: ") == text);
    CHECK(softmetal_last_report(text, 4) > 4 && strcmp(text, "sof") == 0);
    softmetal_clear_reports();
    CHECK(softmetal_reports(NULL) == 0 && softmetal_last_report(text, sizeof text) == 0);
}

REPORTS_BY("argument", a_string_of_nothing, CHECK([NSString stringWithUTF8String:NULL] == nil))

REPORTS("dead-object", a_message_to_an_object_that_is_gone)
{
    if (getenv("SOFTMETAL_VALIDATION") == NULL) {
        return; /* without validation the memory is really gone */
    }
    NSObject *object = [NSObject new];
    [object release];
    [object release];
}

REPORTS("dead-object", a_pool_that_is_drained_twice)
{
    if (getenv("SOFTMETAL_VALIDATION") == NULL) {
        return;
    }
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    [pool drain];
    [pool drain];
}
