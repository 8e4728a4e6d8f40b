/* texture_cube.c: the faces of a cube: which one a direction meets, where, and what is past its edges; see texture.h. */
#include "softmetal/kernels/texture.h"

#include <math.h>

/* A face's own directions: `major` goes to its middle, `right` and `down` along its pixels. */
static const struct {
    float major[3], right[3], down[3];
} faces[6] = {
    {{1, 0, 0}, {0, 0, -1}, {0, -1, 0}}, {{-1, 0, 0}, {0, 0, 1}, {0, -1, 0}},
    {{0, 1, 0}, {1, 0, 0}, {0, 0, 1}},   {{0, -1, 0}, {1, 0, 0}, {0, 0, -1}},
    {{0, 0, 1}, {1, 0, 0}, {0, -1, 0}},  {{0, 0, -1}, {-1, 0, 0}, {0, -1, 0}},
};

static float
dot(const float a[3], const float b[3])
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

static unsigned
face_of(const float direction[3])
{
    float x = fabsf(direction[0]), y = fabsf(direction[1]), z = fabsf(direction[2]);
    unsigned axis = z >= x && z >= y ? 2 : y >= x ? 1 : 0;
    return 2 * axis + (direction[axis] < 0.0f);
}

unsigned
soft_cube_face(const float direction[3], float at[2])
{
    unsigned face = face_of(direction);
    float far = dot(direction, faces[face].major);
    at[0] = 0.5f * (dot(direction, faces[face].right) / far + 1.0f);
    at[1] = 0.5f * (dot(direction, faces[face].down) / far + 1.0f);
    return face;
}

unsigned
soft_cube_cross(unsigned face, int32_t side, int32_t at[2])
{
    float direction[3], parts[2];
    float right = (2.0f * (float)at[0] + 1.0f) / (float)side - 1.0f;
    float down = (2.0f * (float)at[1] + 1.0f) / (float)side - 1.0f;
    for (int i = 0; i < 3; i++) {
        direction[i] =
            faces[face].major[i] + right * faces[face].right[i] + down * faces[face].down[i];
    }
    face = soft_cube_face(direction, parts);
    for (int i = 0; i < 2; i++) {
        int32_t pixel = (int32_t)floorf(parts[i] * (float)side);
        at[i] = pixel < 0 ? 0 : pixel >= side ? side - 1 : pixel;
    }
    return face;
}

float
soft_cube_length(soft_u32 side, const float at[3], const float step[3])
{
    unsigned face = face_of(at);
    float sum = 0.0f;
    float far = dot(at, faces[face].major), deep = dot(step, faces[face].major);
    for (int i = 0; i < 2; i++) {
        const float *along = i == 0 ? faces[face].right : faces[face].down;
        float moved = (dot(step, along) * far - dot(at, along) * deep) / (far * far);
        moved *= 0.5f * (float)side;
        sum += moved * moved;
    }
    return sqrtf(sum);
}
