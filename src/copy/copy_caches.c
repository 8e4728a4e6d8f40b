/* copy_caches.c: how large this machine's caches are, asked once; see copy_plan.h. */
#include "copy/copy_plan.h"

#include <pthread.h>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#else
#include <unistd.h>
#endif

static copy_caches caches = {.first_nbytes = 32 << 10, .second_nbytes = 1 << 20};
static pthread_once_t asked = PTHREAD_ONCE_INIT;

#if defined(__APPLE__)

/* 0: the machine does not know this name.  Some numbers have 4 bytes, some 8. */
static int64_t
ask_number(const char *name)
{
    int64_t number = 0;
    size_t nbytes = sizeof(number);
    return sysctlbyname(name, &number, &nbytes, NULL, 0) == 0 ? number : 0;
}

/* SPEC developer.apple.com/documentation/kernel/1387446-sysctlbyname
 *      /determining_system_capabilities: perflevel0 are the fastest cores; a name without a
 * level is about the slowest, or about a machine that has one kind. */
static int64_t
ask_fastest(const char *name, const char *name_without_level)
{
    int64_t number = ask_number(name);
    return number > 0 ? number : ask_number(name_without_level);
}

static void
ask_sizes(int64_t *first, int64_t *second)
{
    int64_t sharers = ask_number("hw.perflevel0.cpusperl2");
    *first = ask_fastest("hw.perflevel0.l1dcachesize", "hw.l1dcachesize");
    *second = ask_fastest("hw.perflevel0.l2cachesize", "hw.l2cachesize");
    *second /= sharers > 0 ? sharers : 1;
}

#else

static void
ask_sizes(int64_t *first, int64_t *second)
{
    *first = sysconf(_SC_LEVEL1_DCACHE_SIZE);
    *second = sysconf(_SC_LEVEL2_CACHE_SIZE);
}

#endif

static void
ask(void)
{
    int64_t first, second;
    ask_sizes(&first, &second);
    caches.first_nbytes = first > 0 ? first : caches.first_nbytes;
    caches.second_nbytes = second > 0 ? second : caches.second_nbytes;
}

const copy_caches *
copy_caches_get(void)
{
    pthread_once(&asked, ask);
    return &caches;
}
