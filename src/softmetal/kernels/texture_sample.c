/* texture_sample.c: which pixels a sample is made of, and how; see texture.h.
 *
 * A coordinate u, in pixels of its level, is in pixel floor(u); a linear filter takes the pixels around u - 1/2, each
 * by how near it is.  A level below 0 is a magnification.  A cube has no edges: past a face is the one beside it.
 * SPEC Metal Shading Language Specification 3.2, 2.10 Samplers, 6.12; Metal, MTLSamplerDescriptor, MTLSamplerAddressMode.
 */
#include "softmetal/kernels/texture.h"

#include <math.h>
#include <stddef.h>

/* ---- a sampler's fields, as SOFT_SAMPLER has them ---- */

enum { NEAREST, LINEAR };
enum { NO_LEVELS, NEAREST_LEVEL, BETWEEN_LEVELS };
enum { CLAMP, MIRROR_ONCE, REPEAT, MIRROR, ZERO, BORDER };
enum { NEVER, LESS, EQUAL, LESS_EQUAL, GREATER, NOT_EQUAL, GREATER_EQUAL };

static soft_u32
field(soft_u64 sampler, unsigned first, unsigned bits)
{
    return (soft_u32)(sampler >> first & ((1ull << bits) - 1));
}

static soft_u32
address_mode(soft_u64 sampler, int axis)
{
    return field(sampler, 4 + 3 * (unsigned)axis, 3);
}

/* Coordinates are parts of the whole. */
static bool
is_normalized(soft_u64 sampler)
{
    return field(sampler, 13, 1) == 0;
}

/* ---- one level of a texture ---- */

typedef struct level_view {
    const soft_u8 *pixels;
    soft_u64 steps[3]; /* bytes from pixel to pixel, row to row, and image to image */
    int32_t sides[3];
    int axes; /* of a coordinate */
    soft_u32 slice;
    bool is_cube;
} level_view;

static bool
is_cube(const soft_texture *texture)
{
    return texture->type == TEXTURE_CUBE || texture->type == TEXTURE_CUBE_ARRAY;
}

static int
axes_of(const soft_texture *texture)
{
    switch (texture->type) {
    case TEXTURE_1D:
    case TEXTURE_1D_ARRAY:
    case TEXTURE_BUFFER: return 1;
    case TEXTURE_3D: return 3;
    default: return 2;
    }
}

static level_view
view_level(const soft_texture *texture, soft_u32 level, soft_u32 slice)
{
    const pixel_format *format = pixel_format_of_number(texture->format);
    return (level_view){
        .pixels = texture->pixels + texture->level[level].offset,
        .steps = {pixel_format_nbytes(format), texture->level[level].row_nbytes,
                  texture->level[level].image_nbytes},
        .sides = {(int32_t)texture_side(texture->width, level),
                  (int32_t)texture_side(texture->height, level),
                  (int32_t)texture_side(texture->depth, level)},
        .axes = axes_of(texture),
        .slice = slice,
        .is_cube = is_cube(texture),
    };
}

/* ---- address modes ---- */

/* A pixel's place along one side; -1: the border. */
static int32_t
address(soft_u32 mode, int32_t at, int32_t side)
{
    int32_t period = 2 * side;
    switch (mode) {
    case REPEAT: return ((at % side) + side) % side;
    case MIRROR:
        at = ((at % period) + period) % period;
        return at < side ? at : period - 1 - at;
    case MIRROR_ONCE: at = at < 0 ? -1 - at : at; break;
    case ZERO:
    case BORDER: return at < 0 || at >= side ? -1 : at;
    default: break;
    }
    return at < 0 ? 0 : at >= side ? side - 1 : at;
}

static const soft_u8 *
pixel_on_cube(const level_view *view, const int32_t at[2])
{
    int32_t on_face[2] = {at[0], at[1]}, side = view->sides[0];
    soft_u32 slice = view->slice;
    if (at[0] < 0 || at[1] < 0 || at[0] >= side || at[1] >= side) {
        slice += soft_cube_cross(slice % 6, side, on_face) - slice % 6;
    }
    return view->pixels + (soft_u32)on_face[0] * view->steps[0] +
           (soft_u32)on_face[1] * view->steps[1] + slice * view->steps[2];
}

/* ---- filters ---- */

static void
add(soft_texels *found, const soft_u8 *pixel, float weight)
{
    found->each[found->count].pixel = pixel;
    found->each[found->count++].weight = weight;
}

/* Far outside it is the same everywhere, or cannot be told. */
#define FARTHEST 1e9f

static float
kept_near(float value)
{
    return value > FARTHEST    ? FARTHEST
           : value < -FARTHEST ? -FARTHEST
           : isnan(value)      ? 0.0f
                               : value;
}

/* For what is kept near; libm's is a call on an old processor. */
static int32_t
floor_of(float value)
{
    int32_t whole = (int32_t)value;
    return whole - ((float)whole > value);
}

/* In pixels of the level, `moved` by whole ones.  A coordinate is a part of one period where it is repeated, so that
 * it stays exact. */
static void
in_pixels(const level_view *view, soft_u64 sampler, const float at[3], float pixels[3])
{
    for (int axis = 0; axis < view->axes; axis++) {
        float u = kept_near(at[axis]);
        soft_u32 mode = address_mode(sampler, axis);
        if (is_normalized(sampler) || view->is_cube) {
            if (mode == REPEAT && !view->is_cube) {
                u -= floorf(u);
            }
            else if (mode == MIRROR && !view->is_cube) {
                u -= 2.0f * floorf(0.5f * u);
            }
            u = kept_near(u * (float)view->sides[axis]);
        }
        pixels[axis] = u;
    }
}

static void
find_nearest(const level_view *view, soft_u64 sampler, const float pixels[3],
             const int32_t moved[3], float weight, soft_texels *found)
{
    const soft_u8 *pixel = view->pixels + (view->axes == 3 ? 0 : view->slice * view->steps[2]);
    for (int axis = 0; pixel != NULL && axis < view->axes; axis++) {
        int32_t at = address(address_mode(sampler, axis), floor_of(pixels[axis]) + moved[axis],
                             view->sides[axis]);
        pixel = at < 0 ? NULL : pixel + view->steps[axis] * (soft_u32)at;
    }
    add(found, pixel, weight);
}

static void
find_nearest_on_cube(const level_view *view, const float pixels[3], const int32_t moved[3],
                     float weight, soft_texels *found)
{
    int32_t at[2];
    for (int axis = 0; axis < 2; axis++) {
        at[axis] = floor_of(pixels[axis]) + moved[axis];
        if (at[axis] >= view->sides[axis]) {
            at[axis] = view->sides[axis] - 1; /* the very edge is its own */
        }
    }
    add(found, pixel_on_cube(view, at), weight);
}

/* The two pixels around a coordinate along one axis. */
typedef struct neighbours {
    int64_t offset[2]; /* in bytes; below 0: the border */
    float weight[2];
} neighbours;

static neighbours
find_neighbours(const level_view *view, soft_u64 sampler, int axis, float pixels, int32_t moved)
{
    int32_t begin = floor_of(pixels - 0.5f);
    float part = pixels - 0.5f - (float)begin;
    neighbours both = {.weight = {1.0f - part, part}};
    for (int up = 0; up < 2; up++) {
        int32_t at =
            address(address_mode(sampler, axis), begin + moved + up, view->sides[axis]);
        both.offset[up] = at < 0 ? -1 : (int64_t)(view->steps[axis] * (soft_u32)at);
    }
    return both;
}

/* The pixels around it: two for each axis.  Each is added, those of no weight too, where `takes_all`. */
static void
find_around(const level_view *view, soft_u64 sampler, const float pixels[3],
            const int32_t moved[3], float weight, bool takes_all, soft_texels *found)
{
    int axes = view->axes;
    const soft_u8 *first = view->pixels + (axes == 3 ? 0 : view->slice * view->steps[2]);
    neighbours along[3];
    for (int axis = 0; axis < axes; axis++) {
        along[axis] = find_neighbours(view, sampler, axis, pixels[axis], moved[axis]);
    }
    for (int corner = 0; corner < 1 << axes; corner++) {
        const soft_u8 *pixel = first;
        float its = weight;
        for (int axis = 0; axis < axes; axis++) {
            int up = corner >> axis & 1;
            int64_t offset = along[axis].offset[up];
            its *= along[axis].weight[up];
            pixel = pixel == NULL || offset < 0 ? NULL : pixel + offset;
        }
        if (its != 0.0f || takes_all) {
            add(found, pixel, its);
        }
    }
}

/* The same on a cube, whose faces go on. */
static void
find_around_on_cube(const level_view *view, const float pixels[3], const int32_t moved[3],
                    float weight, bool takes_all, soft_texels *found)
{
    int32_t low[2], side = view->sides[0];
    float part[2], missing = 0.0f;
    soft_u32 first = found->count;
    for (int axis = 0; axis < 2; axis++) {
        int32_t begin = floor_of(pixels[axis] - 0.5f);
        part[axis] = pixels[axis] - 0.5f - (float)begin;
        low[axis] = begin + moved[axis];
    }
    for (int corner = 0; corner < 4; corner++) {
        int32_t at[2] = {low[0] + (corner & 1), low[1] + (corner >> 1)};
        float its = weight * ((corner & 1) != 0 ? part[0] : 1.0f - part[0]) *
                    (corner >> 1 != 0 ? part[1] : 1.0f - part[1]);
        bool is_corner = (at[0] < 0 || at[0] >= side) && (at[1] < 0 || at[1] >= side);
        if (is_corner && !takes_all) {
            missing = its; /* three faces meet: there is no fourth pixel */
        }
        else if (its != 0.0f || takes_all) {
            add(found, pixel_on_cube(view, at), its);
        }
    }
    for (soft_u32 i = first; missing != 0.0f && i < found->count; i++) {
        found->each[i].weight += missing / (float)(found->count - first);
    }
}

/* ---- levels ---- */

static float
chosen_level(soft_u64 sampler, soft_floats level)
{
    float least = (float)field(sampler, 23, 16) / 4096.0f;
    soft_u32 limit = field(sampler, 39, 16);
    float most = limit == 65535 ? (float)SOFT_MOST_LEVELS : (float)limit / 4096.0f;
    float bias = (float)((int64_t)sampler >> SOFT_BIAS_SHIFT) / 4.0f;
    float chosen = fmaxf(level[0] + bias, level[1]);
    return isnan(chosen) ? 0.0f : fminf(fmaxf(chosen, least), most);
}

static soft_u32
slice_of(const soft_texture *texture, soft_u32 asked, unsigned face)
{
    soft_u32 each = is_cube(texture) ? 6 : 1;
    soft_u32 count = texture->slices / each;
    soft_u32 slice = asked < count ? asked : count == 0 ? 0 : count - 1;
    return slice * each + face;
}

static void
find_on_level(const soft_texture *texture, soft_u64 sampler, const float at[3], soft_u32 level,
              soft_u32 slice, soft_u32 how, bool is_linear, float weight, soft_texels *found)
{
    level_view view = view_level(texture, level, slice);
    bool gathers = (how & SOFT_GATHER) != 0;
    float pixels[3] = {0, 0, 0};
    int32_t moved[3];
    for (int axis = 0; axis < 3; axis++) {
        moved[axis] = (int32_t)(how >> (4 + 4 * axis) & 15) - 8;
    }
    in_pixels(&view, sampler, at, pixels);
    if (view.is_cube) {
        (gathers || is_linear)
            ? find_around_on_cube(&view, pixels, moved, weight, gathers, found)
            : find_nearest_on_cube(&view, pixels, moved, weight, found);
    }
    else if (gathers || is_linear) {
        find_around(&view, sampler, pixels, moved, weight, gathers, found);
    }
    else {
        find_nearest(&view, sampler, pixels, moved, weight, found);
    }
}

void
soft_texture_find(const soft_texture *texture, soft_u64 sampler, soft_floats at,
                  soft_floats level, soft_u32 slice, soft_u32 how, soft_texels *found)
{
    found->count = 0;
    const pixel_format *format = soft_texture_format(texture);
    if (format == NULL) {
        return;
    }
    float where[3] = {at[0], at[1], at[2]};
    unsigned face =
        is_cube(texture) ? soft_cube_face((const float[3]){at[0], at[1], at[2]}, where) : 0;
    slice = slice_of(texture, slice, face);
    float chosen = (how & SOFT_GATHER) != 0 ? 0.0f : chosen_level(sampler, level);
    bool is_linear =
        !pixel_format_is_integer(format) && field(sampler, chosen > 0.0f ? 0 : 1, 1) == LINEAR;
    soft_u32 between = field(sampler, 2, 2);
    float top = (float)(texture->levels - 1);
    chosen = between == NO_LEVELS ? 0.0f : fminf(fmaxf(chosen, 0.0f), top);
    float below = floorf(between == BETWEEN_LEVELS ? chosen : chosen + 0.5f);
    float part = between == BETWEEN_LEVELS ? chosen - below : 0.0f;
    below = fminf(below, top);
    find_on_level(texture, sampler, where, (soft_u32)below, slice, how, is_linear, 1.0f - part,
                  found);
    if (part > 0.0f) {
        find_on_level(texture, sampler, where, (soft_u32)below + 1, slice, how, is_linear, part,
                      found);
    }
}

/* How far a step to the next pixel leads on the texture, in pixels. */
static float
length_of(const soft_texture *texture, const float at[3], soft_floats step)
{
    float sum = 0.0f;
    if (is_cube(texture)) {
        return soft_cube_length(texture->width, at,
                                (const float[3]){step[0], step[1], step[2]});
    }
    const soft_u32 sides[3] = {texture->width, texture->height, texture->depth};
    for (int axis = 0; axis < axes_of(texture); axis++) {
        float moved = step[axis] * (float)sides[axis];
        sum += moved * moved;
    }
    return sqrtf(sum);
}

float
soft_texture_level(const soft_texture *texture, soft_floats at, soft_floats along_x,
                   soft_floats along_y)
{
    if (texture == NULL) {
        return 0.0f;
    }
    const float where[3] = {at[0], at[1], at[2]};
    return log2f(fmaxf(length_of(texture, where, along_x), length_of(texture, where, along_y)));
}

/* ---- from pixels to what a kernel is given ---- */

/* What is past an edge.  Which colour it has where an axis has zeros and another one a colour is nowhere said. */
static soft_pixel
border(const soft_texture *texture, soft_u64 sampler)
{
    const pixel_format *format = pixel_format_of_number(texture->format);
    soft_u32 one = soft_texture_one(format), color = field(sampler, 17, 2);
    bool has_color = false;
    for (int axis = 0; axis < axes_of(texture); axis++) {
        has_color = has_color || address_mode(sampler, axis) == BORDER;
    }
    soft_pixel pixel = {0, 0, 0, 0};
    if (has_color && color != 0) { /* MTLSamplerBorderColor */
        soft_u32 light = color == 2 ? one : 0;
        pixel = (soft_pixel){light, light, light, one};
    }
    return soft_texture_complete(format, pixel);
}

static bool
compares(soft_u32 how, float given, float found)
{
    switch (how) {
    case NEVER: return false;
    case LESS: return given < found;
    case EQUAL: return given == found;
    case LESS_EQUAL: return given <= found;
    case GREATER: return given > found;
    case NOT_EQUAL: return given != found;
    case GREATER_EQUAL: return given >= found;
    default: return true;
    }
}

/* One pixel of a sample; the comparison is of its first channel. */
static soft_pixel
value_of(const soft_texture *texture, soft_u64 sampler, const soft_u8 *pixel, soft_floats at,
         soft_u32 how)
{
    soft_pixel value =
        pixel == NULL ? border(texture, sampler)
                      : soft_texture_decode(pixel_format_of_number(texture->format), pixel);
    if ((how & SOFT_COMPARE) != 0) {
        value[0] = soft_as_bits(
            compares(field(sampler, 14, 3), at[3], soft_as_float(value[0])) ? 1.0f : 0.0f);
    }
    return value;
}

static soft_pixel
average(const soft_texels *found, const soft_pixel *values)
{
    soft_floats sum = {0.0f, 0.0f, 0.0f, 0.0f};
    for (soft_u32 i = 0; i < found->count; i++) {
        sum += found->each[i].weight * (soft_floats)values[i];
    }
    return (soft_pixel)sum;
}

static soft_pixel
reduce(const soft_texels *found, const soft_pixel *values, soft_u32 reduction)
{
    soft_pixel result = values[0];
    for (int channel = 0; channel < 4; channel++) {
        float most = soft_as_float(values[0][channel]);
        for (soft_u32 i = 1; i < found->count; i++) {
            float value = soft_as_float(values[i][channel]);
            most = reduction == SOFT_REDUCTION_LEAST ? fminf(most, value) : fmaxf(most, value);
        }
        result[channel] = soft_as_bits(most);
    }
    return result;
}

soft_pixel
soft_texture_sample(const soft_texture *texture, soft_u64 sampler, soft_floats at,
                    soft_floats level, soft_u32 slice, soft_u32 how)
{
    soft_texels found;
    soft_pixel values[SOFT_MOST_TEXELS];
    soft_texture_find(texture, sampler, at, level, slice, how, &found);
    if (found.count == 0) {
        return (soft_pixel){0, 0, 0, 0};
    }
    const pixel_format *format = pixel_format_of_number(texture->format);
    for (soft_u32 i = 0; i < found.count; i++) {
        values[i] = value_of(texture, sampler, found.each[i].pixel, at, how);
    }
    if ((how & SOFT_GATHER) != 0) {
        /* from the left below on, against the clock: (0,1), (1,1), (1,0), (0,0) */
        unsigned component = (how & SOFT_COMPARE) != 0 ? 0 : how >> 2 & 3;
        return (soft_pixel){values[2][component], values[3][component], values[1][component],
                            values[0][component]};
    }
    if (found.count == 1 || pixel_format_is_integer(format)) {
        return values[0];
    }
    soft_u32 reduction = field(sampler, SOFT_REDUCTION_SHIFT, 2);
    return reduction == SOFT_REDUCTION_AVERAGE ? average(&found, values)
                                               : reduce(&found, values, reduction);
}
