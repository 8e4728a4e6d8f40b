/* nsstring.m: immutable strings, held as UTF-8.
 *
 * Owns:    the bytes of each string.
 * Threads: any; strings never change.
 * Note:    NSString itself has no storage; its `alloc` makes a SoftMetalString.
 */
#import "softmetal/apple/objects.h"

#include <stdlib.h>
#include <string.h>

#include "softmetal/validation.h"

@interface SoftMetalString : NSString {
    char *_bytes;
}
@end

@implementation NSString

+ (instancetype)alloc
{
    return self == [NSString class] ? (id)[SoftMetalString alloc] : [super alloc];
}

/* Apple's raises for NULL. */
+ (instancetype)stringWithUTF8String:(const char *)nullTerminatedCString
{
    if (nullTerminatedCString == NULL) {
        soft_validation_report(SOFT_REPORT_ARGUMENT,
                               "+[NSString stringWithUTF8String:]: the text is NULL.");
        return nil;
    }
    return [[[self alloc] initWithUTF8String:nullTerminatedCString] autorelease];
}

- (instancetype)initWithUTF8String:(const char *)nullTerminatedCString
{
    (void)nullTerminatedCString;
    [self release];
    return nil;
}

- (const char *)UTF8String
{
    return "";
}

- (NSUInteger)length
{
    NSUInteger units = 0;
    for (const char *byte = [self UTF8String]; *byte != '\0'; byte++) {
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
    for (const char *byte = [self UTF8String]; *byte != '\0'; byte++) {
        hash = hash * 33 + (unsigned char)*byte;
    }
    return hash;
}

@end

@implementation SoftMetalString

- (instancetype)initWithUTF8String:(const char *)nullTerminatedCString
{
    _bytes = nullTerminatedCString != NULL ? strdup(nullTerminatedCString) : NULL;
    if (_bytes == NULL) {
        [self release];
        return nil;
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

@end

/* Literals are made by the compiler: no header before them, no count. */
@implementation NSConstantString

+ (void)load
{
    soft_error_domain_set_class(self);
}

- (const char *)UTF8String
{
    return c_string;
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
