/* bell.c: see bell.h. */
#include "metal/bell.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

struct metal_bell {
    uint32_t refs; /* atomic */
    int reading, writing;
};

static bool
prepare(int descriptor)
{
    return fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0 &&
           fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0;
}

metal_bell *
bell_new(void)
{
    int ends[2];
    metal_bell *bell = malloc(sizeof *bell);
    if (bell == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    if (pipe(ends) != 0) {
        free(bell);
        return NULL;
    }
    *bell = (metal_bell){1, ends[0], ends[1]};
    if (!prepare(ends[0]) || !prepare(ends[1])) {
        int reason = errno; /* unreached: no test makes it fail here */
        bell_release(bell);
        errno = reason; /* unreached: no test makes it fail here */
        return NULL;
    }
    return bell;
}

void
bell_retain(metal_bell *bell)
{
    (void)__atomic_fetch_add(&bell->refs, 1, __ATOMIC_RELAXED);
}

/* Both ends are closed together: writing to a pipe that nobody reads is a signal. */
void
bell_release(metal_bell *bell)
{
    if (__atomic_sub_fetch(&bell->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        (void)close(bell->reading);
        (void)close(bell->writing);
        free(bell);
    }
}

int
bell_descriptor(const metal_bell *bell)
{
    return bell->reading;
}

/* A pipe that is full is readable already. */
void
bell_ring(metal_bell *bell)
{
    while (write(bell->writing, "", 1) < 0 && errno == EINTR) {
    }
}
