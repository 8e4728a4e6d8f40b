/* call_site.c: records stacks and gives their frames names.
 *
 * Owns:    nothing that stays.
 * Calls:   the unwinder and dladdr; validation.h to know whether it is worth the time.
 * Threads: any.
 */
#define _GNU_SOURCE /* dladdr */
#include "softmetal/call_site.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

#include <objc/objc.h>

#include "softmetal/validation.h"

#define MOST_SHOWN 3
#define FRAMES_OF_USES 8 /* there are many, and each frame takes time */
#define MOST_SITES 4096  /* kept for ever; reports show "?" for any further one */
#define MOST_STEPS 64
#define FRAMES_INSIDE 2       /* at least: this file and its caller */
#define LONGEST_FUNCTION 8192 /* bytes; a symbol further away is another function's */

struct soft_call_site {
    void *caller;
    int count;
    void *frames[SOFT_MOST_FRAMES];
};

static __thread void *last_caller;

void
soft_call_site_set_caller(void *address)
{
    last_caller = address;
}

struct walk {
    soft_call_site *site;
    int most;
};

/* Up to what is shown: each frame takes a microsecond. */
static _Unwind_Reason_Code
note_frame(struct _Unwind_Context *context, void *argument)
{
    struct walk *walk = argument;
    soft_call_site *site = walk->site;
    void *frame = (void *)_Unwind_GetIP(context);
    if (frame == NULL || site->count == walk->most) {
        return _URC_END_OF_STACK;
    }
    site->frames[site->count] = frame;
    site->count += 1;
    if (frame == site->caller && site->count + MOST_SHOWN - 1 < walk->most) {
        walk->most = site->count + MOST_SHOWN - 1;
    }
    return _URC_NO_REASON;
}

soft_call_site *
soft_call_site_record(int most)
{
    if (!soft_validation_is_on()) {
        return NULL;
    }
    soft_call_site *site = malloc(sizeof *site);
    if (site != NULL) {
        site->caller = last_caller;
        site->count = 0;
        struct walk walk = {site, most};
        (void)_Unwind_Backtrace(note_frame, &walk);
    }
    return site;
}

soft_call_site *
soft_call_site_of(void *caller)
{
    soft_call_site *site = soft_validation_is_on() ? malloc(sizeof *site) : NULL;
    if (site != NULL) {
        site->caller = site->frames[0] = caller;
        site->count = 1;
    }
    return site;
}

void *
soft_call_site_caller(void)
{
    return last_caller;
}

static bool
are_equal(const soft_call_site *one, const soft_call_site *other)
{
    return one->caller == other->caller && one->count == other->count &&
           memcmp(one->frames, other->frames, (size_t)one->count * sizeof one->frames[0]) == 0;
}

static size_t
hash_frames(const soft_call_site *site)
{
    uint64_t mixed = (uint64_t)(uintptr_t)site->caller;
    for (int index = 0; index < site->count; index++) {
        mixed =
            (mixed ^ (uint64_t)(uintptr_t)site->frames[index]) * UINT64_C(0x9e3779b97f4a7c15);
        mixed ^= mixed >> 29;
    }
    return (size_t)mixed;
}

const soft_call_site *
soft_call_site_intern(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static soft_call_site *known[MOST_SITES]; /* owned for ever */
    soft_call_site *site = soft_call_site_record(FRAMES_OF_USES);
    if (site == NULL) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    size_t slot = hash_frames(site) % MOST_SITES, steps = 0;
    while (known[slot] != NULL && !are_equal(known[slot], site) && steps < MOST_STEPS) {
        slot = (slot + 1) % MOST_SITES;
        steps += 1;
    }
    soft_call_site *found = steps < MOST_STEPS ? known[slot] : NULL;
    if (found == NULL && steps < MOST_STEPS) {
        found = known[slot] = site;
    }
    pthread_mutex_unlock(&lock);
    if (found != site) {
        free(site);
    }
    return found;
}

/* The index of the first frame that is the program's, as well as we can tell. */
static int
find_caller(const soft_call_site *site)
{
    for (int index = 0; index < site->count; index++) {
        if (site->frames[index] == site->caller) {
            return index;
        }
    }
    return site->count > FRAMES_INSIDE ? FRAMES_INSIDE : 0;
}

static size_t
describe_frame(void *frame, char *text, size_t nbytes)
{
    Dl_info info;
    if (dladdr(frame, &info) == 0) {
        return (size_t)snprintf(text, nbytes, "%p", frame);
    }
    const char *file = strrchr(info.dli_fname, '/');
    file = file != NULL ? file + 1 : info.dli_fname;
    size_t offset = (size_t)((char *)frame - (char *)info.dli_fbase);
    size_t distance =
        info.dli_saddr != NULL ? (size_t)((char *)frame - (char *)info.dli_saddr) : 0;
    BOOL is_near = info.dli_sname != NULL && distance < LONGEST_FUNCTION;
    return (size_t)snprintf(text, nbytes, "%s%s%s+0x%zx%s", is_near ? info.dli_sname : "",
                            is_near ? " (" : "", file, offset, is_near ? ")" : "");
}

const char *
soft_call_site_describe(const soft_call_site *site, char *text, size_t nbytes)
{
    snprintf(text, nbytes, "?");
    if (site == NULL) {
        return text;
    }
    size_t length = 0;
    int first = find_caller(site);
    for (int index = first; index < site->count && index < first + MOST_SHOWN; index++) {
        if (index > first && length < nbytes) {
            length += (size_t)snprintf(text + length, nbytes - length, " < ");
        }
        if (length < nbytes) {
            length += describe_frame(site->frames[index], text + length, nbytes - length);
        }
    }
    return text;
}
