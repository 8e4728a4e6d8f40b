/* metal_scalars.h: the scalars of Metal's language; C and Python (`_core._metal_scalars`) know them from here.
 *
 * X(name, MTLDataType, that of two columns of two or 0, DLPack's code, bits): a scalar's vectors of
 * 2, 3 and 4 follow it in MTLDataType, and of its matrices the first of nine is given.
 */
#ifndef MD_METAL_SCALARS_H
#define MD_METAL_SCALARS_H

/* clang-format off */
#define METAL_SCALARS(X) \
    X(float, 3, 7, kDLFloat, 32)    X(half, 16, 20, kDLFloat, 16)  X(int, 29, 0, kDLInt, 32) \
    X(uint, 33, 0, kDLUInt, 32)     X(short, 37, 0, kDLInt, 16)    X(ushort, 41, 0, kDLUInt, 16) \
    X(char, 45, 0, kDLInt, 8)       X(uchar, 49, 0, kDLUInt, 8)    X(bool, 53, 0, kDLBool, 8) \
    X(long, 81, 0, kDLInt, 64)      X(ulong, 85, 0, kDLUInt, 64)   X(bfloat, 121, 0, kDLBfloat, 16)
/* clang-format on */

#endif /* MD_METAL_SCALARS_H */
