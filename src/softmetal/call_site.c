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

#include "validation.h"

#define MOST_FRAMES 12
#define MOST_SHOWN 4

struct soft_call_site {
    int count;
    void *frames[MOST_FRAMES];
};

soft_call_site *
soft_call_site_record(void)
{
    if (!soft_validation_is_on()) {
        return NULL;
    }
    soft_call_site *site = malloc(sizeof *site);
    if (site != NULL) {
        site->count = backtrace(site->frames, MOST_FRAMES);
    }
    return site;
}

void
soft_call_site_free(soft_call_site *site)
{
    free(site);
}

/* A frame of this library itself: its methods and functions carry its names. */
static int
is_inside(const char *symbol)
{
    return symbol != NULL &&
           (strncmp(symbol, "soft_", 5) == 0 || strstr(symbol, "SoftMetal") != NULL ||
            strstr(symbol, "NSObject") != NULL);
}

const char *
soft_call_site_describe(const soft_call_site *site, char *text, size_t nbytes)
{
    size_t length = 0;
    int shown = 0;
    text[0] = '\0';
    for (int index = 0; site != NULL && index < site->count && shown < MOST_SHOWN; index++) {
        Dl_info info;
        if (dladdr(site->frames[index], &info) == 0 || is_inside(info.dli_sname)) {
            continue;
        }
        const char *file = strrchr(info.dli_fname, '/');
        file = file != NULL ? file + 1 : info.dli_fname;
        size_t offset = (size_t)((char *)site->frames[index] - (char *)info.dli_fbase);
        int added = snprintf(text + length, nbytes - length, "%s%s (%s+0x%zx)",
                             shown > 0 ? " < " : "", info.dli_sname != NULL ? info.dli_sname : "?",
                             file, offset);
        length += (size_t)added;
        if (length >= nbytes) {
            break;
        }
        shown += 1;
    }
    return text;
}
