/* coverage_flush.c: writes what was counted when a process ends without its exit handlers: when it
 * aborts, as those do that the software Metal stops, or by os._exit (tools/coverage).
 *
 * Owns:    the handler of SIGABRT, until the process sets another.
 * Calls:   gcov's runtime.
 * Threads: the handler runs on the one that aborts.
 */
#include <signal.h>
#include <stdlib.h>

void __gcov_dump(void);

__attribute__((visibility("default"))) void
coverage_write(void)
{
    __gcov_dump();
}

static void
write_counts(int signal_number)
{
    __gcov_dump();
    (void)signal(signal_number, SIG_DFL);
    (void)raise(signal_number);
}

__attribute__((constructor)) static void
watch(void)
{
    (void)signal(SIGABRT, write_counts);
}
