/* mutant_trace.c: marks each block of code that runs, in a file that all processes of a test map.
 *
 * Owns:      the mapping, as long as the process.
 * Calls:     nothing of the module. gcc calls it, at each block: -fsanitize-coverage=trace-pc.
 * Threads:   any; a mark is one byte, set once.
 * Invariant: byte i of the file stands for the code i bytes after the module's begin.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MARKS = 1 << 22 }; /* as mutant_trace.py; more bytes than the module has code */

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
static uint8_t *marks; /* NULL: nobody measures */

__attribute__((constructor)) static void
map_marks(void)
{
    const char *path = getenv("MUTANT_TRACE");
    int file = path == NULL ? -1 : open(path, O_RDWR);
    if (file < 0) {
        return;
    }
    void *mapped = mmap(NULL, MARKS, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    marks = mapped == MAP_FAILED ? NULL : mapped;
    close(file);
}

void
__sanitizer_cov_trace_pc(void)
{
    size_t at = (size_t)((const char *)__builtin_return_address(0) - __ehdr_start);
    if (marks != NULL && at < MARKS && marks[at] == 0) {
        marks[at] = 1;
    }
}
