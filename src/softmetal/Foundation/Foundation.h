/* Foundation.h: the part of Foundation that Metal code of this project needs.
 *
 * Owns:    declarations only, each as in Apple's Foundation: same names, types and meaning.
 * Calls:   the Objective-C runtime's headers.
 * Threads: as Apple documents: objects may be shared, pools belong to one thread.
 * Note:    GCC has no blocks, no typed enums and no nullability outside properties.
 *          String literals (@"...") need -fconstant-string-class=NSConstantString.
 */
#ifndef SOFTMETAL_FOUNDATION_H
#define SOFTMETAL_FOUNDATION_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include <objc/objc.h>

#if defined(__APPLE__)
#include <objc/NSObject.h>
#else

typedef long NSInteger;
typedef unsigned long NSUInteger;

#define NSIntegerMax LONG_MAX
#define NSIntegerMin LONG_MIN
#define NSUIntegerMax ULONG_MAX

@class NSString, Protocol;

@protocol NSObject
- (BOOL)isEqual:(id)object;
@property(readonly) NSUInteger hash;
- (Class)class;
- (BOOL)isKindOfClass:(Class)aClass;
- (BOOL)conformsToProtocol:(Protocol *)aProtocol;
- (BOOL)respondsToSelector:(SEL)aSelector;
- (instancetype)retain;
- (oneway void)release;
- (instancetype)autorelease;
- (NSUInteger)retainCount;
@end

#if __has_attribute(objc_root_class)
__attribute__((objc_root_class))
#endif
@interface NSObject<NSObject> {
    Class isa;
}
+ (void)load;
+ (void)initialize;
+ (instancetype)new;
+ (instancetype)alloc;
- (instancetype)init;
- (void)dealloc;
- (id)copy;
+ (BOOL)conformsToProtocol:(Protocol *)protocol;
+ (Class)class;
@end

#endif /* __APPLE__ */

#if defined(__clang__)
#define NS_ENUM(type, name) \
    enum name : type name; \
    enum name : type
#define NS_OPTIONS(type, name) NS_ENUM(type, name)
#define NS_RETURNS_RETAINED __attribute__((ns_returns_retained))
#else
#define NS_ENUM(type, name) \
    type name; \
    enum
#define NS_OPTIONS(type, name) NS_ENUM(type, name)
#define NS_RETURNS_RETAINED
#endif

typedef double CFTimeInterval; /* seconds */

typedef struct _NSRange {
    NSUInteger location;
    NSUInteger length;
} NSRange;

static inline NSRange
NSMakeRange(NSUInteger location, NSUInteger length)
{
    NSRange range = {location, length};
    return range;
}

/* What an autorelease pool of the calling thread must surround.  `drain` and `release` are the
 * same; a pool cannot be retained or autoreleased. */
@interface NSAutoreleasePool : NSObject {
  @private
    void *_stack;
    NSUInteger _mark, _depth;
}
- (void)drain;
@end

@interface NSString : NSObject {
  @private
    char *_bytes;
    unsigned int _nbytes; /* of a literal */
}
@property(readonly) NSUInteger length;      /* in UTF-16 units */
@property(readonly) const char *UTF8String; /* borrowed from the string */
+ (instancetype)stringWithUTF8String:(const char *)nullTerminatedCString;
- (instancetype)initWithUTF8String:(const char *)nullTerminatedCString;
- (BOOL)isEqualToString:(NSString *)aString;
@end

#if !defined(__clang__)
/* GCC makes instances of it out of @"..." when told to, with exactly NSString's layout. */
@interface NSConstantString : NSString
@end
#endif

@interface NSArray : NSObject {
  @private
    id *_objects; /* each owned (+1) */
    NSUInteger _count;
}
@property(readonly) NSUInteger count;
- (id)objectAtIndex:(NSUInteger)index;
@end

typedef struct {
    NSInteger majorVersion;
    NSInteger minorVersion;
    NSInteger patchVersion;
} NSOperatingSystemVersion;

@interface NSProcessInfo : NSObject
+ (NSProcessInfo *)processInfo;
@property(readonly) NSOperatingSystemVersion operatingSystemVersion; /* SOFTMETAL_MACOS */
@end

@interface NSEnumerator : NSObject {
  @private
    NSArray *_array; /* owned (+1) */
    NSUInteger _next;
}
- (id)nextObject; /* nil: there are no more */
@end

@interface NSDictionary : NSObject {
  @private
    NSArray *_keys, *_objects; /* owned (+1) */
}
@property(readonly) NSUInteger count;
- (id)objectForKey:(id)aKey; /* nil: there is none */
- (NSEnumerator *)keyEnumerator;
@end

typedef NSString *NSErrorDomain;
typedef NSString *NSErrorUserInfoKey;

@interface NSError : NSObject {
  @private
    NSErrorDomain _domain; /* borrowed for ever */
    NSInteger _code;
    NSString *_text;         /* owned (+1) */
    NSDictionary *_userInfo; /* owned (+1); nil: none */
}
@property(readonly, copy) NSErrorDomain domain;
@property(readonly) NSInteger code;
@property(readonly, copy) NSDictionary *userInfo;
@property(readonly, copy) NSString *localizedDescription;
@end

@interface NSURL : NSObject {
  @private
    NSString *_path; /* owned (+1) */
}
+ (NSURL *)fileURLWithPath:(NSString *)path;
@property(readonly) const char *fileSystemRepresentation; /* borrowed from the URL */
@end

#endif /* SOFTMETAL_FOUNDATION_H */
