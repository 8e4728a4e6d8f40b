/* handles.m: what lies at an address: an object of a class that the runtime knows, a mapped file.
 *
 * Note:    addresses come from other frameworks and from users; nothing is touched before the kernel
 *          and the runtime have said that it can be.
 */
#import "bridge/parts.h"

#import <objc/runtime.h>

#ifdef __APPLE__
#include <libproc.h>
#include <mach/mach.h>
#include <malloc/malloc.h>
#include <unistd.h>
#else
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#ifdef __APPLE__
/* malloc knows its own blocks, and an object is one as a rule; of all other memory the kernel
 * copies a word, or says that it cannot. */
static bool
is_readable(const void *address)
{
    if (malloc_size(address) >= sizeof(void *)) {
        return true;
    }
    uintptr_t word = 0;
    vm_size_t nbytes = 0;
    kern_return_t result = vm_read_overwrite(mach_task_self(), (vm_address_t)address,
                                             sizeof word, (vm_address_t)&word, &nbytes);
    return result == KERN_SUCCESS && nbytes == sizeof word;
}

bridge_map
bridge_map_at(const void *address)
{
    struct proc_regionwithpathinfo region;
    int nbytes = proc_pidinfo(getpid(), PROC_PIDREGIONPATHINFO, (uintptr_t)address, &region,
                              sizeof region);
    if (nbytes != sizeof region || region.prp_vip.vip_vi.vi_stat.vst_ino == 0) {
        return BRIDGE_NO_FILE;
    }
    return region.prp_prinfo.pri_share_mode == SM_COW ? BRIDGE_PRIVATE_FILE : BRIDGE_FILE;
}
#else
/* The kernel copies the signal set before it looks at `how`: EFAULT says that the word cannot
 * be read, EINVAL that it can.  One call, no signal handler, nothing changed. */
static bool
is_readable(const void *address)
{
    long result = syscall(SYS_rt_sigprocmask, ~0, address, NULL, sizeof(uint64_t));
    return !(result == -1 && errno == EFAULT);
}

bridge_map
bridge_map_at(const void *address)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096 + 100], rights[5] = ""; /* a path, and numbers before it */
    unsigned long first = 0, end = 0, inode = 0;
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL &&
           sscanf(line, "%lx-%lx %4s %*s %*s %lu", &first, &end, rights, &inode) == 4 &&
           end <= (uintptr_t)address) {
        inode = 0;
    }
    if (maps != NULL) {
        (void)fclose(maps);
    }
    bool is_file = first <= (uintptr_t)address && (uintptr_t)address < end && inode != 0;
    return !is_file ? BRIDGE_NO_FILE : rights[3] == 'p' ? BRIDGE_PRIVATE_FILE : BRIDGE_FILE;
}
#endif

/* Is it one of the runtime's classes?  Nothing else may be asked of it before that is known:
 * the first word of a NumPy array's bytes is no class.  A Mac has some ten thousand. */
static bool
is_class(Class candidate)
{
    int capacity = objc_getClassList(NULL, 0);
    Class *known = capacity > 0 ? calloc((size_t)capacity, sizeof *known) : NULL;
    if (known == NULL) {
        return false;
    }
    int count = objc_getClassList(known, capacity);
    count = count < capacity ? count : capacity; /* Apple's runtime gives the total */
    bool is_known = false;
    for (int i = 0; i < count && !is_known; i++) {
        is_known = known[i] == candidate;
    }
    free(known);
    return is_known;
}

static bool
class_conforms(Class found, Protocol *protocol)
{
    for (Class c = found; c != Nil; c = class_getSuperclass(c)) {
        if (class_conformsToProtocol(c, protocol)) {
            return true;
        }
    }
    return false;
}

/* What would be the class, were there an object; Nil: there is none. */
static Class
class_at(const void *handle)
{
    if (handle == NULL || (uintptr_t)handle % sizeof(void *) != 0 || !is_readable(handle)) {
        return Nil;
    }
    /* Reads one word, and on Apple's runtimes masks out what else is in it. */
    return object_getClass((id)handle);
}

bool
is_object(const void *handle)
{
    return is_class(class_at(handle));
}

bool
is_object_of(const void *handle, Protocol *protocol, const void **last)
{
    Class found = class_at(handle);
    if (found == Nil || (const void *)found == __atomic_load_n(last, __ATOMIC_RELAXED)) {
        return found != Nil;
    }
    if (!is_class(found) || !class_conforms(found, protocol)) {
        return false;
    }
    __atomic_store_n(last, (const void *)found, __ATOMIC_RELAXED);
    return true;
}
