/* settings.c: reads settings from the environment and from softmetal_set.
 *
 * Owns:      the values, one atomic number each.
 * Calls:     failure.h for the one setting that is more than a number.
 * Threads:   any; the environment is read once, before the first answer.
 * Invariant: a text that is not understood changes nothing and is reported once, on stderr.
 */
#include "softmetal/settings.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softmetal/failure.h"
#include "softmetal/softmetal.h"

#define MOST_DEVICES 8

typedef bool (*reader)(const char *text, uint64_t *value);

static uint64_t values[SOFT_SETTING_COUNT];
static pthread_once_t environment_once = PTHREAD_ONCE_INIT;

/* A decimal number with an optional K, M or G (powers of 1024). */
static bool
read_size(const char *text, uint64_t *value)
{
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    end += shift != 0;
    if (errno != 0 || *end != '\0' || (number << shift) >> shift != number) {
        return false;
    }
    *value = (uint64_t)number << shift;
    return true;
}

/* As many bytes as a blit moves: halves of it are multiples of 4. */
static bool
read_limit(const char *text, uint64_t *value)
{
    return read_size(text, value) && *value > 0 && *value % 8 == 0;
}

/* A number other than 0 shuffles; "last" stands for the order that is furthest from the written
 * one. */
static bool
read_seed(const char *text, uint64_t *value)
{
    if (strcmp(text, "last") == 0) {
        *value = UINT64_MAX;
        return true;
    }
    return read_size(text, value) && *value != UINT64_MAX;
}

/* Which of the words, which have a bar between them, the text is. */
static bool
read_word(const char *words, const char *text, uint64_t *value)
{
    size_t length = strcspn(words, "|");
    for (*value = 0; strlen(text) != length || strncmp(words, text, length) != 0; ++*value) {
        if (words[length] == '\0') {
            return false;
        }
        words += length + 1;
        length = strcspn(words, "|");
    }
    return true;
}

/* "none", or a list of the three with commas between. */
static bool
read_devices(const char *text, uint64_t *value)
{
    static const char *const kinds[] = {"unified", "discrete", "paravirtual"};
    uint64_t count = 0, bits[3] = {0};
    if (strcmp(text, "none") == 0) {
        *value = 0;
        return true;
    }
    for (;;) {
        size_t length = strcspn(text, ","), kind = 0;
        while (kind < 3 &&
               (strlen(kinds[kind]) != length || strncmp(text, kinds[kind], length) != 0)) {
            kind += 1;
        }
        if (kind == 3 || count == MOST_DEVICES) {
            return false;
        }
        bits[kind] |= UINT64_C(1) << count;
        count += 1;
        if (text[length] == '\0') {
            *value = count | bits[1] << 8 | bits[2] << 16;
            return true;
        }
        text += length + 1;
    }
}

static bool
read_fail(const char *text, uint64_t *value)
{
    *value = 0;
    return soft_failure_set_rules(text);
}

int softmetal_is_watching, softmetal_is_poisoning, softmetal_is_checking,
    softmetal_knows_unwritten;

#define AS_ROW(name, environment, initial, words, reader) {environment, initial, words, reader},
static const struct {
    const char *environment;
    const char *initial;
    const char *words; /* that it may be; NULL: `read` knows */
    reader read;
} rows[] = {SOFT_SETTING_LIST(AS_ROW)};
#undef AS_ROW

static bool
store_text(int index, const char *text)
{
    uint64_t value;
    const char *words = rows[index].words;
    if (!(words != NULL ? read_word(words, text, &value) : rows[index].read(text, &value))) {
        return false;
    }
    __atomic_store_n(&values[index], value, __ATOMIC_RELAXED);
    int watches = __atomic_load_n(&values[SOFT_VALIDATION], __ATOMIC_RELAXED) != 0 &&
                  __atomic_load_n(&values[SOFT_RACES], __ATOMIC_RELAXED) != 0;
    __atomic_store_n(&softmetal_is_watching, watches, __ATOMIC_RELAXED);
    int poisons = __atomic_load_n(&values[SOFT_POISON], __ATOMIC_RELAXED) != 0;
    __atomic_store_n(&softmetal_is_poisoning, poisons, __ATOMIC_RELAXED);
    int checks = __atomic_load_n(&values[SOFT_KERNEL_CHECK], __ATOMIC_RELAXED) != 0;
    __atomic_store_n(&softmetal_is_checking, checks, __ATOMIC_RELAXED);
    return true;
}

static void
read_environment(void)
{
    for (int index = 0; index < SOFT_SETTING_COUNT; index++) {
        const char *text = getenv(rows[index].environment);
        store_text(index, rows[index].initial);
        if (text != NULL && !store_text(index, text)) {
            fprintf(stderr, "softmetal: %s (\"%s\") is not understood; it stays \"%s\".\n",
                    rows[index].environment, text, rows[index].initial);
        }
    }
}

void
soft_settings_read(void)
{
    pthread_once(&environment_once, read_environment);
}

uint64_t
soft_settings_get(soft_setting setting)
{
    soft_settings_read();
    return __atomic_load_n(&values[setting], __ATOMIC_RELAXED);
}

int
softmetal_set(const char *name, const char *value)
{
    soft_settings_read();
    for (int index = 0; index < SOFT_SETTING_COUNT; index++) {
        if (strcmp(rows[index].environment, name) == 0) {
            return store_text(index, value != NULL ? value : rows[index].initial) ? 0 : -1;
        }
    }
    return -1;
}

void
softmetal_reset(void)
{
    soft_settings_read(); /* first: a later question must not read it once more */
    read_environment();
}

int
soft_macos(void)
{
    static const int majors[] = {14, 15, 26, 27}; /* the words of SOFTMETAL_MACOS */
    return majors[soft_settings_get(SOFT_MACOS)];
}

/* ---- the seed ---- */

soft_seed_kind
soft_seed_order(void)
{
    uint64_t seed = soft_settings_get(SOFT_SEED);
    return seed == 0            ? SOFT_ORDER_FIRST
           : seed == UINT64_MAX ? SOFT_ORDER_LAST
                                : SOFT_ORDER_RANDOM;
}

/* splitmix64, by Steele, Lea and Flood. */
uint64_t
soft_seed_random(uint64_t *state)
{
    uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ mixed >> 31;
}
