/* check_textures.c: pixels that a kernel asks for; see check_state.h.
 *
 * Owns:    nothing.
 * Calls:   check_state.h.
 * Threads: the OS thread that runs the launch.
 *
 * Races and bytes that nobody wrote are found by address, as those of buffers.  Here is what addresses do not tell: a
 * pixel that is none, a texture that is none, and a thread's own write that it reads with no fence() between.
 */
#include "softmetal/checker/check_state.h"

#include "arithmetic/pixel_format.h"

static soft_finding
refuse(const soft_check *check, const soft_texture *texture, const soft_u32 at[4],
       bool is_write)
{
    soft_finding found = {.kind = SOFT_FOUND_PIXEL,
                          .memory = soft_range_found(check->texture_range),
                          .first = at[0] | (uint64_t)at[1] << 32,
                          .second = at[2] | (uint64_t)at[3] << 32,
                          .is_advice = !is_write};
    if (at[3] < texture->levels) {
        found.sides[0] = texture_side(texture->width, at[3]);
        found.sides[1] = texture_side(texture->height, at[3]);
        found.sides[2] =
            texture->slices > 1 ? texture->slices : texture_side(texture->depth, at[3]);
    }
    return found;
}

/* A structure may hold any number instead. */
SOFT_ON_FIBER void
soft_textures_know(soft_check *check, const soft_texture *texture, soft_u32 how,
                   const void *site)
{
    const soft_launch *launch = check->launch.launch;
    if (texture == NULL ? (how & SOFT_ACCESS_FENCE) != 0 : texture == check->texture) {
        return; /* NULL has no sides */
    }
    for (uint32_t i = 0; texture != NULL && i < launch->reached_count; i++) {
        if (launch->reached[i].texture == texture) {
            check->texture = texture;
            check->texture_range =
                &check->ranges[(soft_u32)check->view_count - launch->reached_count + i];
            return;
        }
    }
    soft_finding found = {.kind = SOFT_FOUND_NO_TEXTURE,
                          .first = (uintptr_t)texture,
                          .is_write = {(how & SOFT_ACCESS_WRITE) != 0}};
    if (texture != NULL) { /* else it may stand in many places */
        (void)soft_memory_find_address(check, found.first, 1, &found);
    }
    soft_check_stop_at(check, found, site);
}

/* Unless it is known of these instructions; the last place is for what stops the launch. */
static void
add(soft_check *check, soft_finding *found)
{
    soft_findings *findings = &check->findings;
    if (soft_findings_has(findings, found->at[0].offset, found->at[1].offset)) {
        return;
    }
    if (findings->count == SOFT_MOST_FINDINGS - 1) {
        findings->has_more = true;
        return;
    }
    (void)soft_findings_add(findings, found);
}

static void
look_for_fence(soft_check *check, uintptr_t place, const soft_pixel_write *write,
               const void *site)
{
    if (write->at != place || write->era != check->pixel_era ||
        write->thread != check->watch->thread) {
        return;
    }
    soft_finding found = {
        .kind = SOFT_FOUND_FENCE,
        .at = {soft_at_thread(check, write->thread, write->site),
               soft_at_thread(check, write->thread, site)},
        .count = 2,
        .is_write = {true, false},
        .memory = soft_range_found(check->texture_range),
        .offset = (int64_t)(place - check->texture_range->base),
        .nbytes = 1,
    };
    add(check, &found);
}

void
soft_textures_touch(soft_check *check, const soft_texture *texture, uintptr_t place,
                    const soft_u32 coordinates[4], soft_u32 how, const void *site)
{
    bool is_write = (how & SOFT_ACCESS_WRITE) != 0;
    if (place == 0) {
        soft_finding found = refuse(check, texture, coordinates, is_write);
        found.is_write[0] = is_write;
        found.at[0] = soft_at_thread(check, check->watch->thread, site);
        found.count = 1;
        add(check, &found);
        return;
    }
    soft_pixel_write *write = &check->pixels[place * 0x9E3779B1u % SOFT_MOST_PIXELS];
    if (!is_write) {
        look_for_fence(check, place, write, site);
    }
    else if (!(how & SOFT_ACCESS_ATOMIC)) {
        *write = (soft_pixel_write){.at = place,
                                    .thread = check->watch->thread,
                                    .era = check->pixel_era,
                                    .site = site};
    }
}

void
soft_textures_settle(soft_check *check)
{
    check->pixel_era += 1;
}
