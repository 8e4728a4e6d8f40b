/* call_site.c: records stacks and gives their frames names.
 *
 * Owns:    nothing that stays.
 * Calls:   backtrace and dladdr; validation.h to know whether it is worth the time.
 * Threads: any.
 */
#define _GNU_SOURCE /* dladdr */
#include "call_site.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <objc/objc.h>

#include "validation.h"

#define MOST_FRAMES 16
#define MOST_SHOWN 3
#define FRAMES_INSIDE 2       /* at least: this file, and who asked it */
#define LONGEST_FUNCTION 8192 /* bytes; a symbol further away is another function's */

struct soft_call_site {
    void *caller;
    int count;
    void *frames[MOST_FRAMES];
};

static __thread void *last_caller;

void
soft_call_site_set_caller(void *address)
{
    last_caller = address;
}

soft_call_site *
soft_call_site_record(void)
{
    if (!soft_validation_is_on()) {
        return NULL;
    }
    soft_call_site *site = malloc(sizeof *site);
    if (site != NULL) {
        site->caller = last_caller;
        site->count = backtrace(site->frames, MOST_FRAMES);
    }
    return site;
}

void
soft_call_site_free(soft_call_site *site)
{
    free(site);
}

/* Where the frames of the program begin, as far as is known. */
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
