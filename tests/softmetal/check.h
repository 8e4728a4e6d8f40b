/* check.h: the tests of the software Metal are a list of cases; runner.c runs each in a process.
 *
 * Owns:    the list.
 * Calls:   softmetal.h: after each case nothing may be left alive.
 * Usage:   CASE(name) must end well.  REPORTS("kind", name) does one wrong thing; with
 * SOFTMETAL_VALIDATION=1 in the mode `log` it must be reported once, as that kind and no other, and
 * in the mode `abort` the process dies of it.  RACES(name) does it with races, as often as it
 * likes.  REPORTS_BY("kind", name, statement) is REPORTS of one statement.  FIRST_CASE(name) makes
 * the very first call of the process.
 */
#ifndef CHECK_H
#define CHECK_H

#import <Metal/Metal.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../c/check_macro.h"
#include "softmetal/softmetal.h"

enum { MAY_LEAK = 1, MAY_REPEAT = 2, IS_FIRST = 4 };

struct test_case {
    const char *name;
    const char *kind; /* of the report it must cause, or NULL */
    int flags;
    void (*run)(void);
    struct test_case *next;
};

extern struct test_case *first_case;

#define ADD_CASE(name_, kind_, flags_) \
    static void name_(void); \
    __attribute__((constructor)) static void add_##name_(void) \
    { \
        static struct test_case one = {#name_, kind_, flags_, name_, NULL}; \
        one.next = first_case; \
        first_case = &one; \
    } \
    static void name_(void)

#define CASE(name_) ADD_CASE(name_, NULL, 0)
#define FIRST_CASE(name_) ADD_CASE(name_, NULL, IS_FIRST)
#define LEAKY_CASE(name_) ADD_CASE(name_, NULL, MAY_LEAK)
#define REPORTS(kind_, name_) ADD_CASE(name_, kind_, 0)
#define REPORTS_BY(kind_, name_, statement_) \
    REPORTS(kind_, name_) \
    { \
        statement_; \
    }
#define LEAKY_REPORTS(kind_, name_) ADD_CASE(name_, kind_, MAY_LEAK)
#define RACES(name_) ADD_CASE(name_, "race", MAY_REPEAT)

/* A block with one captured pointer, as clang would lay it out. */
struct block_descriptor {
    unsigned long reserved, size;
};
struct block {
    void *isa;
    int flags, reserved;
    void (*invoke)(void);
    const struct block_descriptor *descriptor;
    void *context;
};
static const struct block_descriptor plain_descriptor = {0, sizeof(struct block)};

#define BLOCK(function, context_) \
    (&(struct block){NULL, 0, 0, (void (*)(void))(function), &plain_descriptor, context_})

/* Return the device, held by the case's pool. */
static inline id<MTLDevice>
open_device(void)
{
    id<MTLDevice> device = [MTLCreateSystemDefaultDevice() autorelease];
    CHECK(device != nil);
    return device;
}

/* Threads 0 to count - 1 at once, 4 at most. */
static inline void
run_threads(long count, void *(*run)(void *number))
{
    pthread_t threads[4];
    for (long index = 0; index < count; index++) {
        CHECK(pthread_create(&threads[index], NULL, run, (void *)index) == 0);
    }
    for (long index = 0; index < count; index++) {
        CHECK(pthread_join(threads[index], NULL) == 0);
    }
}

/* In a forked child: 0, or how waitpid says that it ended. */
static inline int
run_child(void (*run)(void *), void *argument)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(20); /* a lock that is held for ever must not hang the test */
        run(argument);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

/* What most cases need, of the one device and of the case's pool. */
static inline id<MTLCommandQueue>
open_queue(void)
{
    return [[open_device() newCommandQueue] autorelease];
}

static inline id<MTLSharedEvent>
open_event(void)
{
    return [[open_device() newSharedEvent] autorelease];
}

static inline id<MTLBuffer>
make_buffer(NSUInteger nbytes, MTLResourceOptions options)
{
    return [[open_device() newBufferWithLength:nbytes options:options] autorelease];
}

static inline id<MTLBuffer>
make_bytes(const char *bytes, MTLResourceOptions options)
{
    return [[open_device() newBufferWithBytes:bytes length:strlen(bytes) + 1
                                      options:options] autorelease];
}

static inline NSString *
text_of(const char *text)
{
    return [NSString stringWithUTF8String:text];
}

static inline void
encode_fill_part(id<MTLCommandBuffer> commands, id<MTLBuffer> buffer, NSRange part,
                 uint8_t value)
{
    id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
    [blit fillBuffer:buffer range:part value:value];
    [blit endEncoding];
}

static inline void
encode_fill(id<MTLCommandBuffer> commands, id<MTLBuffer> buffer, uint8_t value)
{
    encode_fill_part(commands, buffer, NSMakeRange(0, [buffer length]), value);
}

static inline void
encode_copy(id<MTLCommandBuffer> commands, id<MTLBuffer> source, id<MTLBuffer> destination)
{
    id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
    [blit copyFromBuffer:source
             sourceOffset:0
                 toBuffer:destination
        destinationOffset:0
                     size:[source length]];
    [blit endEncoding];
}

static inline void
finish(id<MTLCommandBuffer> commands)
{
    [commands commit];
    [commands waitUntilCompleted];
}

/* Where an image of images/ is: beside the program that runs. */
#define IMAGE_PATH_SIZE 4096

static inline void
find_image(const char *name, char path[IMAGE_PATH_SIZE])
{
    ssize_t length = readlink("/proc/self/exe", path, IMAGE_PATH_SIZE - 64);
    CHECK(length > 0);
    while (path[length - 1] != '/') {
        length -= 1;
    }
    snprintf(path + length, 64, "%s.so", name);
}

/* A kernel of one line of threads. */
static inline void
dispatch(id<MTLComputeCommandEncoder> compute, NSUInteger threads)
{
    [compute dispatchThreads:(MTLSize){threads, 1, 1}
        threadsPerThreadgroup:(MTLSize){threads, 1, 1}];
}

#endif /* CHECK_H */
