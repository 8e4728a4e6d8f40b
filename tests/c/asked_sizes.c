/* asked_sizes.c: stands in for sysconf and sysctlbyname, as copy_caches.c calls them.
 *
 * Built with -Dsysconf=test_sysconf -Dsysctlbyname=test_sysctlbyname: the machine is what the
 * test says it is, and every question is counted.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define MOST_NAMES 8

typedef struct {
    const char *name;
    int64_t number;
    int nbytes;
} answer;

int64_t level1_nbytes, level2_nbytes; /* what test_sysconf says */
answer answers[MOST_NAMES];           /* what test_sysctlbyname knows */
int questions;

long test_sysconf(int name);
int test_sysctlbyname(const char *name, void *value, size_t *nbytes, void *set,
                      size_t set_nbytes);

long
test_sysconf(int name)
{
    __atomic_add_fetch(&questions, 1, __ATOMIC_RELAXED);
    return (long)(name == _SC_LEVEL1_DCACHE_SIZE  ? level1_nbytes
                  : name == _SC_LEVEL2_CACHE_SIZE ? level2_nbytes
                                                  : -1);
}

int
test_sysctlbyname(const char *name, void *value, size_t *nbytes, void *set, size_t set_nbytes)
{
    __atomic_add_fetch(&questions, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < MOST_NAMES && answers[i].name != NULL; i++) {
        if (strcmp(name, answers[i].name) == 0 && set == NULL && set_nbytes == 0) {
            memcpy(value, &answers[i].number, (size_t)answers[i].nbytes);
            *nbytes = (size_t)answers[i].nbytes;
            return 0;
        }
    }
    errno = ENOENT;
    return -1;
}
