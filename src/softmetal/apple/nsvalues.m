/* nsvalues.m: NSString, NSError, NSURL, NSArray, NSDictionary, NSProcessInfo, and the names in Metal's errors.
 *
 * Owns:    the bytes of each string, held as UTF-8; the members of an array, each +1.
 * Threads: any; nothing here changes once made.
 */
#import "softmetal/apple/objects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softmetal/host.h"
#include "softmetal/settings.h"
#include "softmetal/validation.h"

@implementation NSString

/* Apple's raises for NULL. */
+ (instancetype)stringWithUTF8String:(const char *)nullTerminatedCString
{
    return SOFT_DEMAND(nullTerminatedCString != NULL, SOFT_REPORT_ARGUMENT,
                       "+[NSString stringWithUTF8String:]: the text is NULL.")
               ? [[[self alloc] initWithUTF8String:nullTerminatedCString] autorelease]
               : nil;
}

- (instancetype)initWithUTF8String:(const char *)nullTerminatedCString
{
    if (nullTerminatedCString == NULL) {
        [self release];
        return nil;
    }
    _bytes = strdup(nullTerminatedCString);
    if (_bytes == NULL) {
        soft_end_without_memory("a text");
    }
    return self;
}

- (void)dealloc
{
    free(_bytes);
    [super dealloc];
}

- (const char *)UTF8String
{
    return _bytes;
}

- (NSUInteger)length
{
    NSUInteger units = 0;
    for (const char *byte = _bytes; *byte != '\0'; byte++) {
        unsigned char lead = (unsigned char)*byte;
        units += (lead & 0xC0) != 0x80; /* one for each code point ... */
        units += lead >= 0xF0;          /* ... and one more outside of the first plane */
    }
    return units;
}

- (BOOL)isEqualToString:(NSString *)aString
{
    return aString != nil && strcmp([self UTF8String], [aString UTF8String]) == 0;
}

- (BOOL)isEqual:(id)object
{
    return self == object ||
           ([object isKindOfClass:[NSString class]] && [self isEqualToString:object]);
}

- (NSUInteger)hash
{
    NSUInteger hash = 5381;
    for (const char *byte = _bytes; *byte != '\0'; byte++) {
        hash = hash * 33 + (unsigned char)*byte;
    }
    return hash;
}

@end

/* Literals are made by the compiler: no header before them, no count. */
/* A constant string needs its class, which only the runtime knows: +load puts it there. */
struct constant_string {
    Class isa;
    const char *bytes;
    unsigned int length;
};
static struct constant_string commands_storage = {Nil, "MTLCommandBufferErrorDomain", 27};
static struct constant_string library_storage = {Nil, "MTLLibraryErrorDomain", 21};
static struct constant_string capture_storage = {Nil, "MTLCaptureErrorDomain", 21};
static struct constant_string encoders_storage = {Nil, "MTLCommandBufferEncoderInfoErrorKey",
                                                  35};

NSErrorDomain const MTLCommandBufferErrorDomain = (NSString *)&commands_storage;
NSErrorDomain const MTLLibraryErrorDomain = (NSString *)&library_storage;
NSErrorDomain const MTLCaptureErrorDomain = (NSString *)&capture_storage;
NSErrorUserInfoKey const MTLCommandBufferEncoderInfoErrorKey = (NSString *)&encoders_storage;

@implementation NSConstantString

+ (void)load
{
    commands_storage.isa = library_storage.isa = self;
    capture_storage.isa = encoders_storage.isa = self;
}

- (instancetype)retain
{
    return self;
}

- (oneway void)release
{
}

- (instancetype)autorelease
{
    return self;
}

- (NSUInteger)retainCount
{
    return NSUIntegerMax;
}

@end

/* ---- errors, arrays, dictionaries ---- */

@implementation NSError

- (instancetype)initWithDomain:(NSErrorDomain)domain
                          code:(NSInteger)code
                          text:(const char *)text
                      userInfo:(NSDictionary *)userInfo
{
    self = [super init];
    _domain = domain;
    _code = code;
    _text = [[NSString alloc] initWithUTF8String:text];
    _userInfo = [userInfo retain];
    return self;
}

- (void)dealloc
{
    [_text release];
    [_userInfo release];
    [super dealloc];
}

@synthesize code = _code;

- (NSDictionary *)userInfo
{
    return _userInfo;
}

- (NSErrorDomain)domain
{
    return _domain;
}

- (NSString *)localizedDescription
{
    return [[_text retain] autorelease];
}

@end

@implementation NSURL

+ (NSURL *)fileURLWithPath:(NSString *)path
{
    NSURL *url = [[[self alloc] init] autorelease];
    url->_path = [path copy];
    return url;
}

- (void)dealloc
{
    [_path release];
    [super dealloc];
}

- (const char *)fileSystemRepresentation
{
    return [_path UTF8String];
}

@end

@implementation NSArray

- (instancetype)initWithObjects:(id *)objects count:(NSUInteger)count
{
    self = [super init];
    _objects = calloc(count + 1, sizeof *_objects);
    if (_objects == NULL) {
        soft_end_without_memory("a list");
    }
    for (_count = 0; _count < count; _count++) {
        _objects[_count] = [objects[_count] retain];
    }
    return self;
}

- (void)dealloc
{
    for (NSUInteger index = 0; index < _count; index++) {
        [_objects[index] release];
    }
    free(_objects);
    [super dealloc];
}

@synthesize count = _count;

- (id)objectAtIndex:(NSUInteger)index
{
    if (index >= _count) {
        fprintf(stderr,
                "softmetal: -[NSArray objectAtIndex:]: the index (%lu) is not below the count "
                "(%lu), so the process ends.\n",
                (unsigned long)index, (unsigned long)_count);
        soft_abort(); /* Foundation raises NSRangeException */
    }
    return _objects[index];
}

@end

@implementation NSProcessInfo

/* Apple's is one object for ever. */
+ (NSProcessInfo *)processInfo
{
    return [[[self alloc] init] autorelease];
}

- (NSOperatingSystemVersion)operatingSystemVersion
{
    return (NSOperatingSystemVersion){soft_macos(), 0, 0};
}

@end

@implementation NSEnumerator

- (instancetype)initWithArray:(NSArray *)array
{
    self = [super init];
    _array = [array retain];
    return self;
}

- (void)dealloc
{
    [_array release];
    [super dealloc];
}

- (id)nextObject
{
    return _next < [_array count] ? [_array objectAtIndex:_next++] : nil;
}

@end

@implementation NSDictionary

- (instancetype)initWithObjects:(id *)objects forKeys:(NSString **)keys count:(NSUInteger)count
{
    self = [super init];
    _objects = [[NSArray alloc] initWithObjects:objects count:count];
    _keys = [[NSArray alloc] initWithObjects:(id *)keys count:count];
    return self;
}

- (void)dealloc
{
    [_keys release];
    [_objects release];
    [super dealloc];
}

- (NSUInteger)count
{
    return [_keys count];
}

- (id)objectForKey:(id)aKey
{
    for (NSUInteger index = 0; index < [_keys count]; index++) {
        if ([[_keys objectAtIndex:index] isEqual:aKey]) {
            return [_objects objectAtIndex:index];
        }
    }
    return nil;
}

- (NSEnumerator *)keyEnumerator
{
    return [[[NSEnumerator alloc] initWithArray:_keys] autorelease];
}

@end
