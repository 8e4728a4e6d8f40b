/* counts.c: see counts.h. */
#include "softmetal/checker/counts.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static soft_counts *first; /* oldest first */

static __thread uint64_t own_tag;
static uint64_t all_tag; /* atomic */

void
soft_counts_file(soft_counts *counts)
{
    pthread_mutex_lock(&lock);
    soft_counts **link = &first;
    while (*link != NULL) {
        link = &(*link)->next;
    }
    counts->next = NULL;
    *link = counts;
    pthread_mutex_unlock(&lock);
}

soft_counts *
soft_counts_take(uint64_t tag)
{
    pthread_mutex_lock(&lock);
    soft_counts **link = &first;
    while (*link != NULL && (*link)->tag != tag) {
        link = &(*link)->next;
    }
    soft_counts *found = *link;
    if (found != NULL) {
        *link = found->next;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void
soft_counts_free(soft_counts *counts)
{
    if (counts == NULL) {
        return;
    }
    for (size_t i = 0; counts->memories != NULL && i < counts->memory_count; i++) {
        free(counts->memories[i].name);
    }
    for (size_t i = 0; counts->rows != NULL && i < counts->row_count; i++) {
        free(counts->rows[i].file);
    }
    free(counts->memories);
    free(counts->rows);
    free(counts->barriers);
    free(counts->meetings);
    free(counts->executions);
    free(counts->kernel);
    free(counts->image_path);
    free(counts->operations);
    free(counts);
}

void
soft_counts_ask(uint64_t tag)
{
    own_tag = tag;
}

void
soft_counts_ask_all(uint64_t tag)
{
    __atomic_store_n(&all_tag, tag, __ATOMIC_RELAXED);
}

bool
soft_counts_are_asked(void)
{
    return own_tag != 0 || __atomic_load_n(&all_tag, __ATOMIC_RELAXED) != 0;
}

uint64_t
soft_counts_tag(int *has_counted)
{
    if (own_tag != 0) {
        return own_tag;
    }
    uint64_t tag = __atomic_load_n(&all_tag, __ATOMIC_RELAXED);
    bool is_wanted = tag != 0 && __atomic_exchange_n(has_counted, 1, __ATOMIC_RELAXED) == 0;
    return is_wanted ? tag : 0;
}
