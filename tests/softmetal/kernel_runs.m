/* kernel_runs.m: the run time of kernels, with images that are C (images/), beside this program. */
#import "check.h"

#include "softmetal/kernels/image.h"
#include "softmetal/kernels/threadgroup.h"

static __thread char error[512];

static soft_loaded_image *
open_image(const char *name)
{
    char path[IMAGE_PATH_SIZE];
    find_image(name, path);
    return soft_image_open(path, name, error, sizeof error);
}

static soft_launch
make_launch(const unsigned grid[3], const unsigned group[3], void *out)
{
    soft_launch launch = {.buffers = {out}};
    for (int axis = 0; axis < 3; axis++) {
        launch.grid[axis] = grid[axis];
        launch.group[axis] = group[axis];
        launch.groups[axis] = (grid[axis] + group[axis] - 1) / group[axis];
    }
    return launch;
}

static soft_launch
make_line(unsigned threads, unsigned group, void *out)
{
    return make_launch((unsigned[]){threads, 1, 1}, (unsigned[]){group, 1, 1}, out);
}

static void
run_image(soft_loaded_image *image, const soft_launch *launch)
{
    if (!soft_image_run(image, launch, error, sizeof error)) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
}

static void
run_line(const char *name, unsigned threads, unsigned group, void *out)
{
    soft_loaded_image *image = open_image(name);
    soft_launch launch = make_line(threads, group, out);
    run_image(image, &launch);
    soft_image_release(image);
}

/* ---- grids ---- */

static void
check_axis(const soft_thread *thread, int axis, unsigned at, const soft_launch *launch)
{
    unsigned group = launch->group[axis], first = at / group * group;
    unsigned left = launch->grid[axis] - first;
    CHECK(thread->position_in_grid[axis] == at);
    CHECK(thread->group_position[axis] == at / group);
    CHECK(thread->position_in_group[axis] == at % group);
    CHECK(thread->group_size[axis] == (left < group ? left : group));
}

static void
check_facts(const soft_thread *thread, const unsigned at[3], const soft_launch *launch)
{
    for (int axis = 0; axis < 3; axis++) {
        check_axis(thread, axis, at[axis], launch);
    }
    const soft_u32 *size = thread->group_size, *in_group = thread->position_in_group;
    CHECK(thread->launch == launch);
    CHECK(thread->index == in_group[0] + size[0] * (in_group[1] + size[1] * in_group[2]));
    CHECK(thread->lane == thread->index % 32 && thread->simdgroup == thread->index / 32);
    CHECK(thread->simdgroups == (size[0] * size[1] * size[2] + 31) / 32);
}

static void
check_grid(soft_loaded_image *image, const unsigned grid[3], const unsigned group[3])
{
    soft_thread *threads = calloc((size_t)grid[0] * grid[1] * grid[2], sizeof *threads);
    soft_launch launch = make_launch(grid, group, threads);
    run_image(image, &launch);
    const soft_thread *thread = threads;
    unsigned at[3];
    for (at[2] = 0; at[2] < grid[2]; at[2]++) {
        for (at[1] = 0; at[1] < grid[1]; at[1]++) {
            for (at[0] = 0; at[0] < grid[0]; at[0]++) {
                check_facts(thread++, at, &launch);
            }
        }
    }
    free(threads);
}

static void
check_grids(const char *name)
{
    static const unsigned shapes[][2][3] = {
        {{1, 1, 1}, {1, 1, 1}},    {{1000, 1, 1}, {32, 1, 1}}, {{7, 5, 3}, {4, 2, 2}},
        {{33, 9, 2}, {32, 4, 1}},  {{5, 6, 70}, {2, 3, 64}},   {{1025, 2, 1}, {1024, 1, 1}},
        {{3, 3, 3}, {10, 10, 10}},
    };
    soft_loaded_image *image = open_image(name);
    for (size_t shape = 0; shape < sizeof shapes / sizeof shapes[0]; shape++) {
        check_grid(image, shapes[shape][0], shapes[shape][1]);
    }
    soft_image_release(image);
}

static const char *const seeds[] = {"0", "1", "11", "last"};
#define EACH_SEED \
    for (int seed = 0; seed < 4 && softmetal_set("SOFTMETAL_SEED", seeds[seed]) == 0; seed++)

CASE(each_thread_of_a_grid_runs_once_and_knows_its_place)
{
    EACH_SEED
    {
        check_grids("facts");
        check_grids("facts_with_syncs");
    }
}

CASE(a_grid_without_threads_runs_nothing)
{
    soft_loaded_image *image = open_image("facts");
    soft_launch launch = make_line(0, 32, NULL);
    run_image(image, &launch);
    soft_image_release(image);
}

static void
expect_refusal(soft_launch launch, const char *text)
{
    soft_loaded_image *image = open_image("facts");
    CHECK(!soft_image_run(image, &launch, error, sizeof error) && strcmp(error, text) == 0);
    soft_image_release(image);
}

CASE(a_threadgroup_or_a_grid_of_a_wrong_size_is_refused)
{
    soft_launch launch = make_line(2000, 1025, NULL);
    expect_refusal(launch,
                   "A threadgroup (1025, 1, 1) has 1025 threads; it may have 1 to 1024.");
    launch.group[0] = 0;
    expect_refusal(launch, "A threadgroup (0, 1, 1) has 0 threads; it may have 1 to 1024.");
    expect_refusal(make_launch((unsigned[]){1u << 31, 1u << 31, 4}, (unsigned[]){1, 1, 1},
                               NULL),
                   "The grid has 2^64 threadgroups or more.");
}

/* ---- barriers ---- */

static void
check_rotation(const unsigned *out, unsigned threads, unsigned group)
{
    for (unsigned i = 0; i < threads; i++) {
        unsigned first = i / group * group;
        unsigned size = threads - first < group ? threads - first : group;
        CHECK(out[i] == (i - first + 50) % size);
    }
}

static void
rotate(unsigned threads, unsigned group)
{
    unsigned *out = calloc(threads, sizeof *out);
    run_line("rotate", threads, group, out);
    check_rotation(out, threads, group);
    free(out);
}

CASE(no_thread_passes_a_barrier_before_all_have_come)
{
    rotate(1, 1);
    rotate(31, 32);
    rotate(5000, 1024);
    EACH_SEED
    {
        rotate(1000, 96);
    }
}

CASE(a_barrier_waits_for_the_threads_that_have_not_returned)
{
    unsigned out[200] = {0};
    run_line("leave_early", 200, 100, out);
    for (int i = 0; i < 200; i++) {
        CHECK(out[i] == (i % 2 == 0 ? 50 : 0));
    }
}

/* ---- SIMD-groups: how lanes meet, tests/msl/test_shim_simdgroups.py ---- */

CASE(what_a_lane_gives_is_good_until_its_next_call)
{
    unsigned out[500];
    memset(out, 0xff, sizeof out);
    run_line("wide", 500, 250, out);
    for (int i = 0; i < 500; i++) {
        CHECK(out[i] == 0);
    }
}

/* ---- threadgroup memory ---- */

static void
run_memory(uint64_t out[9])
{
    CHECK(softmetal_set("SOFTMETAL_KERNEL_THREADS", "1") == 0);
    soft_loaded_image *image = open_image("memory");
    soft_launch launch = make_line(2, 1, out);
    launch.threadgroup_nbytes[0] = 32;
    launch.threadgroup_nbytes[5] = 4096;
    run_image(image, &launch);
    soft_image_release(image);
}

CASE(variables_and_arguments_of_a_threadgroup_lie_apart)
{
    static const uint64_t sizes[] = {100, 4096, 64, 32};
    uint64_t out[9] = {0};
    run_memory(out);
    CHECK(out[4] == 0 && out[1] % 16 == 0 && out[2] % 64 == 0 && out[3] % 16 == 0);
    for (int one = 0; one < 4; one++) {
        for (int other = 0; other < 4; other++) {
            CHECK(one == other || out[one] + sizes[one] <= out[other] ||
                  out[other] + sizes[other] <= out[one]);
        }
    }
    CHECK(out[5] == 1); /* of the threadgroup before: nobody clears it */
}

CASE(poison_fills_the_memory_of_each_threadgroup)
{
    uint64_t out[9] = {0};
    CHECK(softmetal_set("SOFTMETAL_POISON", "1") == 0);
    run_memory(out);
    CHECK(out[5] == 0xcd && out[6] == 0xcd && out[7] == 0xcd && out[8] == 0xcd);
}

static int
count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    int lines = 0, character;
    while ((character = getc(maps)) != EOF) {
        lines += character == '\n';
    }
    fclose(maps);
    return lines;
}

CASE(a_kernel_that_is_stopped_leaves_its_threads_behind_and_no_stack)
{
    CHECK(softmetal_set("SOFTMETAL_KERNEL_THREADS", "1") == 0);
    soft_loaded_image *image = open_image("too_much_memory");
    soft_launch launch = make_line(300, 300, NULL);
    int before = 0;
    for (int round = 0; round < 50; round++) {
        CHECK(!soft_image_run(image, &launch, error, sizeof error));
        CHECK(strstr(error, "exceeds the 32768 bytes of a threadgroup") != NULL);
        before = round == 0 ? count_mappings() : before;
        rotate(300, 300);
    }
    CHECK(count_mappings() <= before + 5); /* 300 stacks would be 600 more */
    soft_image_release(image);
}

CASE(an_os_thread_that_comes_after_the_stop_runs_nothing)
{
    unsigned out[129];
    soft_loaded_image *image = open_image("order");
    soft_launch launch = make_line(64, 64, out);
    out[0] = 0;
    CHECK(softmetal_set("SOFTMETAL_KERNEL_THREADS", "1") == 0);
    run_image(image, &launch); /* its threads are still on the fibers */
    CHECK(out[0] == 128);
    soft_run run = {.image = image->image, .launch = &launch, .is_stopped = 2};
    soft_shuffle_begin(&run.shuffle, 1);
    soft_threadgroup *group = soft_threadgroup_take();
    CHECK(!soft_threadgroup_run(group, &run, 0, 1));
    soft_threadgroup_give_back(group);
    CHECK(out[0] == 128);
    rotate(64, 64); /* by the same threadgroup */
    soft_image_release(image);
}

/* ---- order ---- */

static void
run_order(const char *seed, unsigned out[257])
{
    CHECK(softmetal_set("SOFTMETAL_SEED", seed) == 0);
    CHECK(softmetal_set("SOFTMETAL_KERNEL_THREADS", "1") == 0);
    memset(out, 0, 257 * sizeof *out);
    run_line("order", 128, 64, out);
    CHECK(out[0] == 256);
}

CASE(without_a_seed_threads_run_in_the_order_of_their_places)
{
    unsigned out[257];
    run_order("0", out);
    for (unsigned i = 0; i < 256; i++) {
        CHECK(out[1 + i] == i / 128 * 64 + i % 64);
    }
}

CASE(the_last_seed_turns_the_order_round)
{
    unsigned out[257];
    run_order("last", out);
    for (unsigned i = 0; i < 256; i++) {
        CHECK(out[1 + i] == 127 - (i / 128 * 64 + i % 64));
    }
}

/* Both turns of one threadgroup, then both of the other. */
static void
check_turns(const unsigned out[257])
{
    for (unsigned i = 0; i < 128; i++) {
        CHECK(out[1 + i] / 64 == out[1] / 64 && out[129 + i] / 64 != out[1] / 64);
    }
}

CASE(a_seed_shuffles_what_barriers_leave_open)
{
    unsigned out[257], before[257] = {0}, moved = 0, other = 0, first_group = 0;
    for (int round = 0; round < 8; round++) {
        run_order("5", out);
        check_turns(out);
        for (unsigned i = 1; i <= 256; i++) {
            moved += out[i] % 64 != (i - 1) % 64;
            other += out[i] % 64 != before[i] % 64;
        }
        memcpy(before, out, sizeof before);
        first_group += out[1] / 64;
    }
    CHECK(moved > 1024 && other > 1024); /* of 2048: unlike the written order and each other */
    CHECK(first_group > 0 && first_group < 8);
}

/* ---- OS threads ---- */

struct worker { /* of a threadgroup of who_works.c */
    uint64_t thread, begin_ns;
};

static int
count_workers(const char *threads)
{
    struct worker out[64] = {{0}};
    int distinct = 0;
    CHECK(softmetal_set("SOFTMETAL_KERNEL_THREADS", threads) == 0);
    run_line("who_works", 64, 1, out);
    for (int i = 0; i < 64; i++) {
        int is_new = out[i].thread != 0;
        for (int before = 0; before < i; before++) {
            is_new = is_new && out[before].thread != out[i].thread;
        }
        distinct += is_new;
        CHECK(out[i].thread != 0);
    }
    return distinct;
}

/* The most that worked on one of many launches: a machine may be slow to wake a thread. */
static int
most_workers(const char *threads)
{
    int most = 0;
    for (int round = 0; round < 50; round++) {
        int count = count_workers(threads);
        most = count > most ? count : most;
    }
    return most;
}

CASE(threadgroups_are_spread_over_as_many_threads_as_the_setting_says)
{
    CHECK(most_workers("1") == 1);
    CHECK(most_workers("3") == 3);
    CHECK(most_workers("2") == 2);
}

CASE(a_launch_of_what_lasted_before_is_shared_from_the_beginning)
{
    struct worker out[2];
    soft_loaded_image *image = open_image("who_works");
    soft_launch launch = make_line(2, 1, out);
    CHECK(softmetal_set("SOFTMETAL_KERNEL_THREADS", "2") == 0);
    int overlaps = 0;
    for (int round = 0; round < 100; round++) { /* a machine may be slow to wake a thread */
        run_image(image, &launch);
        int64_t later_ns = (int64_t)(out[1].begin_ns - out[0].begin_ns);
        overlaps += later_ns < 1000000 && later_ns > -1000000;
    }
    CHECK(overlaps > 0);
    soft_image_release(image);
}

static void *
rotate_often(void *unused)
{
    for (int round = 0; round < 20; round++) {
        rotate(4000, 64);
    }
    return unused;
}

CASE(several_launches_run_at_once)
{
    CHECK(softmetal_set("SOFTMETAL_KERNEL_THREADS", "3") == 0);
    run_threads(4, rotate_often);
}

static void
run_in_child(void *image)
{
    unsigned out[1000];
    soft_launch launch = make_line(1000, 100, out);
    CHECK(!soft_image_run(image, &launch, error, sizeof error));
    CHECK(strcmp(error, "Kernels cannot run in a forked child.") == 0);
    CHECK(open_image("rotate") == NULL);
    soft_image_release(image);
}

CASE(a_forked_child_runs_no_kernel)
{
    unsigned out[1000];
    soft_loaded_image *image = open_image("rotate");
    soft_launch launch = make_line(1000, 100, out);
    run_image(image, &launch);
    CHECK(run_child(run_in_child, image) == 0);
    run_image(image, &launch);
    check_rotation(out, 1000, 100);
    soft_image_release(image);
}

/* ---- images ---- */

CASE(a_thread_may_have_two_hundred_kibibytes_of_variables)
{
    unsigned out[64] = {0};
    run_line("deep", 64, 64, out);
    for (int i = 1; i < 64; i++) {
        CHECK(out[i] == out[0] && out[0] != 0);
    }
}

CASE(what_is_no_image_is_refused_with_a_sentence)
{
    CHECK(soft_image_open("/nowhere/to/be/found", "none", error, sizeof error) == NULL);
    CHECK(strstr(error, "The compiled kernel cannot be loaded: /nowhere") == error);
    CHECK(open_image("no_image") == NULL);
    CHECK(strstr(error, "no_image.so is not a compiled kernel.") != NULL);
    CHECK(open_image("other_abi") == NULL);
    CHECK(strstr(error, "has version 6 of the interface, and this run time version 5") != NULL);
}

CASE(an_image_that_is_open_twice_lives_until_the_last_release)
{
    unsigned out[64];
    soft_loaded_image *one = open_image("rotate"), *other = open_image("rotate");
    CHECK(one->image == other->image);
    CHECK(soft_image_retain(one) == one);
    soft_image_release(one);
    soft_image_release(other);
    soft_launch launch = make_line(64, 64, out);
    run_image(one, &launch);
    check_rotation(out, 64, 64);
    const char *facts = (const char *)one->image;
    CHECK(facts >= one->base && facts < one->base + one->nbytes);
    soft_image_release(one);
}
