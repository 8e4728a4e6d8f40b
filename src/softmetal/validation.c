/* validation.c: counts, keeps and prints reports of wrong use.
 *
 * Owns:    the counters (atomic) and the last text (behind soft_validation_mutex).
 * Calls:   settings.h, host.h, stdio.  In the mode `abort`: the stack goes to stderr, then abort().
 * Threads: any; nothing else is locked by this file while it prints.
 */
#include "softmetal/validation.h"

#include <execinfo.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "softmetal/host.h"
#include "softmetal/settings.h"
#include "softmetal/softmetal.h"

#define TEXT_SIZE 2048
#define MOST_FRAMES 24

pthread_mutex_t soft_validation_mutex = PTHREAD_MUTEX_INITIALIZER;
static char last_text[TEXT_SIZE];
static size_t counts[SOFT_REPORT_COUNT];

#define AS_WORD(name, word) word,
static const char *const words[] = {SOFT_REPORT_LIST(AS_WORD)};
#undef AS_WORD

bool
soft_validation_is_on(void)
{
    return soft_settings_get(SOFT_VALIDATION) != 0;
}

/* Count a report and keep its text, which is left in `text`. */
static void
keep(soft_report kind, const char *format, va_list arguments, char text[TEXT_SIZE])
{
    int length = snprintf(text, TEXT_SIZE, "softmetal: %s: ", words[kind]);
    vsnprintf(text + length, TEXT_SIZE - (size_t)length, format, arguments);
    __atomic_add_fetch(&counts[kind], 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&soft_validation_mutex);
    memcpy(last_text, text, TEXT_SIZE);
    pthread_mutex_unlock(&soft_validation_mutex);
}

void
soft_validation_again(soft_report kind, const char *format, ...)
{
    char text[TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    keep(kind, format, arguments, text);
    va_end(arguments);
}

void
soft_validation_print(soft_report kind, const char *format, ...)
{
    char text[TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    keep(kind, format, arguments, text);
    va_end(arguments);
    fprintf(stderr, "%s\n", text);
}

void
soft_validation_insist(soft_report kind, const char *format, ...)
{
    char text[TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    keep(kind, format, arguments, text);
    va_end(arguments);
    fprintf(stderr, "%s\n", text);
    if (soft_settings_get(SOFT_VALIDATION_MODE) != 0 && soft_validation_is_on()) {
        void *frames[MOST_FRAMES];
        backtrace_symbols_fd(frames, backtrace(frames, MOST_FRAMES), STDERR_FILENO);
        soft_abort();
    }
}

size_t
softmetal_reports(const char *kind)
{
    size_t sum = 0;
    for (int index = 0; index < SOFT_REPORT_COUNT; index++) {
        if (kind == NULL || strcmp(kind, words[index]) == 0) {
            sum += __atomic_load_n(&counts[index], __ATOMIC_RELAXED);
        }
    }
    return sum;
}

size_t
softmetal_last_report(char *text, size_t nbytes)
{
    pthread_mutex_lock(&soft_validation_mutex);
    int length = snprintf(text, nbytes, "%s", last_text);
    pthread_mutex_unlock(&soft_validation_mutex);
    return (size_t)length;
}

void
softmetal_clear_reports(void)
{
    for (int index = 0; index < SOFT_REPORT_COUNT; index++) {
        __atomic_store_n(&counts[index], 0, __ATOMIC_RELAXED);
    }
    pthread_mutex_lock(&soft_validation_mutex);
    last_text[0] = '\0';
    pthread_mutex_unlock(&soft_validation_mutex);
}
