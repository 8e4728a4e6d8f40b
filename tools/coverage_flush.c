/* coverage_flush.c: writes what was counted when a process ends without its exit handlers: when it
 * aborts, as those do that the software Metal stops, or by os._exit, before which tools/coverage
 * raises SIGRTMIN.  The module exports no function that could be called instead.
 *
 * Owns:    the handlers of SIGABRT and SIGRTMIN, until the process sets others.
 * Calls:   gcov's runtime.
 * Threads: a handler runs on the one that aborts or raises.
 */
#include <signal.h>
#include <stdlib.h>

void __gcov_dump(void);

static void
write_counts(int signal_number)
{
    __gcov_dump();
    if (signal_number == SIGABRT) {
        (void)signal(signal_number, SIG_DFL);
        (void)raise(signal_number);
    }
}

__attribute__((constructor)) static void
watch(void)
{
    (void)signal(SIGABRT, write_counts);
    (void)signal(SIGRTMIN, write_counts);
}
