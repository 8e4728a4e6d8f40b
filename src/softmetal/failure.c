/* failure.c: the rules of SOFTMETAL_FAIL.
 *
 * Owns:    the rules and one counter per kind, behind soft_failure_mutex; two flags (atomic).
 * Calls:   pthreads.
 * Threads: any; without rules a call costs one atomic load.
 */
#include "softmetal/failure.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RULES 32

struct rule {
    soft_failure kind;
    unsigned long first;
    bool repeats;
    int code;
};

struct rule_set {
    int count;
    struct rule rules[MOST_RULES];
};

pthread_mutex_t soft_failure_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct rule_set current;
static unsigned long calls[SOFT_FAILURE_COUNT];
static int any_rule, devices_removed;

#define AS_WORD(name, word) word,
static const char *const kind_words[] = {SOFT_FAILURE_LIST(AS_WORD)};
#undef AS_WORD

/* MTLCommandBufferError without its prefix. */
static const char *const code_words[] = {
    [1] = "Internal",        [2] = "Timeout",      [3] = "PageFault",
    [4] = "AccessRevoked",   [7] = "NotPermitted", [8] = "OutOfMemory",
    [9] = "InvalidResource", [10] = "Memoryless",  [11] = "DeviceRemoved",
    [12] = "StackOverflow",
};
#define CODE_COUNT ((int)(sizeof code_words / sizeof code_words[0]))

const char *
soft_failure_code_name(int code)
{
    return code > 0 && code < CODE_COUNT ? code_words[code] : NULL;
}

/* The length of the word at `text` when it is one of `words`, else 0; its index in `found`. */
static size_t
match_word(const char *text, const char *const *words, int count, int *found)
{
    size_t length = strcspn(text, "@=,");
    for (int index = 0; index < count; index++) {
        if (words[index] != NULL && strlen(words[index]) == length &&
            strncmp(words[index], text, length) == 0) {
            *found = index;
            return length;
        }
    }
    return 0;
}

static bool
parse_code(const char **text, int *code)
{
    size_t length = match_word(*text, code_words, CODE_COUNT, code);
    if (length > 0) {
        *text += length;
        return true;
    }
    char *end = NULL;
    unsigned long number = strtoul(*text, &end, 10);
    if (end == *text || number >= CODE_COUNT || soft_failure_code_name((int)number) == NULL) {
        return false;
    }
    *code = (int)number;
    *text = end;
    return true;
}

static bool
parse_rule(const char **text, struct rule *rule)
{
    int kind;
    size_t length = match_word(*text, kind_words, SOFT_FAILURE_COUNT, &kind);
    if (length == 0) {
        return false;
    }
    *text += length;
    *rule = (struct rule){.kind = (soft_failure)kind, .first = 1, .code = 1};
    if (**text == '@') {
        char *end = NULL;
        *text += 1;
        rule->first = **text >= '1' && **text <= '9' ? strtoul(*text, &end, 10) : 0;
        if (rule->first == 0) {
            return false;
        }
        *text = end;
        rule->repeats = **text == '+';
        *text += rule->repeats;
    }
    if (**text == '=') {
        *text += 1;
        return parse_code(text, &rule->code);
    }
    return true;
}

static bool
parse_rules(const char *text, struct rule_set *set)
{
    for (set->count = 0; *text != '\0'; set->count++) {
        if (set->count == MOST_RULES || !parse_rule(&text, &set->rules[set->count])) {
            return false;
        }
        if (*text == ',' && text[1] != '\0') {
            text += 1;
        }
        else if (*text != '\0') {
            return false;
        }
    }
    return true;
}

bool
soft_failure_set_rules(const char *text)
{
    struct rule_set fresh;
    if (!parse_rules(text, &fresh)) {
        return false;
    }
    pthread_mutex_lock(&soft_failure_mutex);
    current = fresh;
    memset(calls, 0, sizeof calls);
    __atomic_store_n(&any_rule, fresh.count > 0, __ATOMIC_RELAXED);
    __atomic_store_n(&devices_removed, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&soft_failure_mutex);
    return true;
}

bool
soft_failure_strikes(soft_failure kind, int *code)
{
    if (!__atomic_load_n(&any_rule, __ATOMIC_RELAXED)) {
        return false;
    }
    bool strikes = false;
    pthread_mutex_lock(&soft_failure_mutex);
    unsigned long call = ++calls[kind];
    for (int index = 0; index < current.count && !strikes; index++) {
        const struct rule *rule = &current.rules[index];
        strikes = rule->kind == kind &&
                  (call == rule->first || (rule->repeats && call > rule->first));
        if (strikes && code != NULL) {
            *code = rule->code;
        }
    }
    pthread_mutex_unlock(&soft_failure_mutex);
    return strikes;
}

void
soft_failure_remove_devices(void)
{
    __atomic_store_n(&devices_removed, 1, __ATOMIC_RELAXED);
}

bool
soft_failure_devices_are_removed(void)
{
    return __atomic_load_n(&devices_removed, __ATOMIC_RELAXED) != 0;
}
