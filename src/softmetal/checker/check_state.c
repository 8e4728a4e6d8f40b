/* check_state.c: see check_state.h.
 *
 * Owns:    nothing.
 * Calls:   check_order.h; `abandon` of the launch; compiler.h for the user's lines, recorder.h,
 *          validation.h.
 * Threads: the OS thread that runs the launch.
 */
#include "softmetal/checker/check_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softmetal/checker/recorder.h"
#include "softmetal/compiler.h"
#include "softmetal/fiber.h"
#include "softmetal/settings.h"
#include "softmetal/validation.h"

static soft_at
at_index(const soft_check *check, soft_u32 index, const soft_u32 group[3], uint32_t offset)
{
    const soft_launch *launch = check->launch.launch;
    soft_at at = {.offset = offset};
    for (int axis = 0; axis < 3; axis++) {
        soft_u32 rest = launch->grid[axis] - group[axis] * launch->group[axis];
        soft_u32 size = rest < launch->group[axis] ? rest : launch->group[axis];
        at.group[axis] = group[axis];
        at.thread[axis] = index % size;
        index /= size;
    }
    return at;
}

soft_at
soft_at_thread(const soft_check *check, soft_u32 index, const void *site)
{
    const soft_order *order = &check->order;
    return at_index(check, index, order->groups[order->group_count - 1].position,
                    soft_check_offset(check, site));
}

soft_at
soft_at_mark(const soft_check *check, soft_mark mark)
{
    return at_index(check, soft_mark_thread(mark),
                    soft_order_group_of(&check->order, mark.time)->position,
                    soft_mark_offset(mark));
}

SOFT_ON_FIBER _Noreturn void
soft_check_stop(soft_check *check)
{
    check->launch.abandon();
    abort(); /* abandon does not return */
}

void
soft_check_stop_without_memory(soft_check *check)
{
    soft_finding found = {.kind = SOFT_FOUND_NO_MEMORY};
    (void)soft_findings_add(&check->findings, &found);
    soft_check_stop(check);
}

SOFT_ON_FIBER _Noreturn void
soft_check_stop_at(soft_check *check, soft_finding found, const void *site)
{
    if (check->observers->returned != NULL) { /* what came before is said before */
        check->observers->returned(check);
    }
    found.at[0] = soft_at_thread(check, check->watch->thread, site);
    found.count = 1;
    (void)soft_findings_add(&check->findings, &found);
    soft_check_stop(check);
}

SOFT_ON_FIBER _Noreturn void
soft_check_stop_overdue(soft_check *check, const void *site)
{
    soft_finding found = {.kind = SOFT_FOUND_OVERDUE,
                          .first = soft_settings_get(SOFT_KERNEL_TIMEOUT)};
    soft_check_stop_at(check, found, site);
}

/* ---- what was found, kept until the end of the launch and then said ---- */

#define TEXT_NBYTES 1600 /* more than all parts together */
#define MOST_PLACES (2 * SOFT_MOST_FINDINGS)

bool
soft_findings_has(soft_findings *findings, uint32_t offset, uint32_t other)
{
    for (size_t i = 0; i < findings->count; i++) {
        const soft_at *at = findings->list[i].at;
        if ((at[0].offset == offset && at[1].offset == other) ||
            (at[0].offset == other && at[1].offset == offset)) {
            findings->list[i].times += 1;
            return true;
        }
    }
    return false;
}

soft_finding *
soft_findings_add(soft_findings *findings, const soft_finding *finding)
{
    if (findings->count == SOFT_MOST_FINDINGS) {
        findings->has_more = true;
        return NULL;
    }
    soft_finding *kept = &findings->list[findings->count++];
    *kept = *finding;
    kept->times = 1;
    return kept;
}

/* "program_source:12:5" of each place; without Python, where it is in the image. */
static void
name_lines(const soft_findings *findings, const char *image_path,
           char (*lines)[SOFT_LINE_NBYTES], char (*shown)[SOFT_LINE_NBYTES],
           bool is_silenced[MOST_PLACES])
{
    uint64_t addresses[MOST_PLACES];
    size_t count = 2 * findings->count;
    for (size_t i = 0; i < count; i++) {
        addresses[i] = findings->list[i / 2].at[i % 2].offset;
        lines[i][0] = '\0';
        is_silenced[i] = false;
    }
    const softmetal_compiler *compiler = soft_compiler_current();
    if (compiler != NULL && compiler->name_lines != NULL && count > 0) {
        compiler->name_lines(image_path, addresses, count, lines, shown, is_silenced);
    }
    for (size_t i = 0; i < count; i++) {
        if (lines[i][0] == '\0') {
            snprintf(lines[i], SOFT_LINE_NBYTES, "%.200s+0x%llx", image_path,
                     (unsigned long long)addresses[i]);
            memcpy(shown[i], lines[i], SOFT_LINE_NBYTES);
        }
    }
}

/* "; program_source:12:5, thread (3,0,0) of threadgroup (0,0,0)" */
static size_t
add_place(char *text, size_t length, const char *before, const char *line, const soft_at *at)
{
    int added = snprintf(text + length, TEXT_NBYTES - length,
                         "%s%s, thread (%u,%u,%u) of threadgroup (%u,%u,%u)", before, line,
                         at->thread[0], at->thread[1], at->thread[2], at->group[0],
                         at->group[1], at->group[2]);
    return length + (size_t)added;
}

static void
compose(const soft_finding *finding, const char *kernel, const char *what,
        char (*lines)[SOFT_LINE_NBYTES], char text[TEXT_NBYTES])
{
    size_t length = (size_t)snprintf(text, TEXT_NBYTES, "%.100s: %s", kernel, what);
    for (int i = 0; i < finding->count; i++) {
        length = add_place(text, length, i == 0 ? ": " : "; ", lines[i], &finding->at[i]);
    }
    snprintf(text + length, TEXT_NBYTES - length, ".");
}

static bool
is_unwritten(const soft_finding *finding)
{
    return finding->kind == SOFT_FOUND_UNWRITTEN || finding->kind == SOFT_FOUND_UNWRITTEN_READ;
}

/* Asks about an argument, not about its lines: no other has them. */
static bool
is_single(const soft_finding *finding)
{
    return finding->kind == SOFT_FOUND_UNWRITTEN_OUTPUT || finding->kind == SOFT_FOUND_TYPE ||
           finding->kind == SOFT_FOUND_STRIDES;
}

static bool
is_same(const soft_finding *finding, char (*lines)[SOFT_LINE_NBYTES], const soft_finding *other,
        char (*others)[SOFT_LINE_NBYTES])
{
    return !is_single(finding) && !is_single(other) && finding->count == other->count &&
           is_unwritten(finding) == is_unwritten(other) && strcmp(lines[0], others[0]) == 0 &&
           strcmp(lines[1], others[1]) == 0;
}

/* Is it of the same lines as one before, as when `x += 1` races with itself?  Or unwritten memory
 * that is read in a race with its only write: then that one says more. */
static bool
is_said_elsewhere(const soft_findings *findings, size_t index, char (*lines)[SOFT_LINE_NBYTES])
{
    const soft_finding *finding = &findings->list[index];
    for (size_t i = 0; i < findings->count; i++) {
        const soft_finding *other = &findings->list[i];
        if (i < index && is_same(finding, &lines[2 * index], other, &lines[2 * i])) {
            return true;
        }
        if (is_unwritten(finding) && !finding->stays_unwritten && other->count == 2 &&
            (other->at[0].offset == finding->at[0].offset ||
             other->at[1].offset == finding->at[0].offset)) {
            return true;
        }
    }
    return false;
}

static bool
is_room(const soft_finding *finding)
{
    return finding->kind == SOFT_FOUND_NO_MEMORY && finding->first == SOFT_ROOM_IS_MEANT;
}

/* After these the kernel went on to its end. */
static bool
is_survived(const soft_finding *finding)
{
    return finding->kind == SOFT_FOUND_RACE || finding->kind == SOFT_FOUND_GROUP_RACE ||
           finding->kind == SOFT_FOUND_PIXEL || finding->kind == SOFT_FOUND_NO_TEXTURE ||
           finding->kind == SOFT_FOUND_FENCE || is_unwritten(finding) || is_single(finding) ||
           is_room(finding);
}

/* How a launch's findings are told. */
typedef struct soft_telling {
    const soft_check_launch *launch;
    char *error; /* the first sentence that fails the launch */
    size_t nbytes;
    bool fails, is_heard; /* heard: one counts that is not silenced */
} soft_telling;

/* `lines` and `shown`: of its two places. */
static void
tell(soft_telling *telling, const soft_finding *finding, char (*lines)[SOFT_LINE_NBYTES],
     char (*shown)[SOFT_LINE_NBYTES], bool is_silent, const char *end)
{
    const soft_check_launch *launch = telling->launch;
    const softmetal_recorder *recorder = soft_recorder_current();
    bool only_reports = soft_settings_get(SOFT_KERNEL_CHECK) == SOFT_CHECK_REPORT;
    char what[SOFT_TEXT_NBYTES], text[TEXT_NBYTES];
    soft_finding_describe(finding, launch->image, what);
    compose(finding, launch->kernel, what, shown, text);
    bool is_news = true;
    if (recorder != NULL) {
        is_news = recorder->finding(
            &(soft_recorded_finding){launch->kernel, launch->image_path, launch->image, finding,
                                     what, (const char (*)[SOFT_LINE_NBYTES])lines, is_silent});
    }
    if (finding->is_advice) {
        return;
    }
    if (!is_survived(finding) || !(is_silent || only_reports)) {
        if (!telling->fails) {
            snprintf(telling->error, telling->nbytes, "%s", text);
        }
        telling->fails = true;
    }
    if (!is_silent) {
        bool is_told_later = recorder != NULL || only_reports;
        telling->is_heard = true;
        (!is_news        ? soft_validation_again
         : is_told_later ? soft_validation_print
                         : soft_validation_insist)(SOFT_REPORT_KERNEL, "%s%s", text, end);
    }
}

bool
soft_findings_say(const soft_findings *findings, const soft_check_launch *launch, char *error,
                  size_t nbytes)
{
    char lines[MOST_PLACES][SOFT_LINE_NBYTES], shown[MOST_PLACES][SOFT_LINE_NBYTES];
    bool is_silenced[MOST_PLACES];
    name_lines(findings, launch->image_path, lines, shown, is_silenced);
    soft_telling telling = {.launch = launch, .error = error, .nbytes = nbytes};
    for (size_t i = 0; i < findings->count; i++) {
        if (!is_said_elsewhere(findings, i, lines)) {
            bool is_last = findings->has_more && i + 1 == findings->count;
            tell(&telling, &findings->list[i], &lines[2 * i], &shown[2 * i],
                 is_silenced[2 * i] || is_silenced[2 * i + 1],
                 is_last ? " (There are more.)" : "");
        }
    }
    if (findings->has_more && !telling.is_heard) {
        soft_finding none_left = {.kind = SOFT_FOUND_NO_MEMORY,
                                  .first = SOFT_ROOM_IS_MEANT,
                                  .times = 1};
        tell(&telling, &none_left, lines, shown, false, "");
    }
    return telling.fails;
}
