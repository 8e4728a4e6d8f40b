/* MTLTypes.h: sizes and places.  As Apple declares them; part of Metal.h. */
#ifndef SOFTMETAL_TYPES_H
#define SOFTMETAL_TYPES_H

#import <Foundation/Foundation.h>

typedef struct {
    NSUInteger x, y, z;
} MTLOrigin;

typedef struct {
    NSUInteger width, height, depth;
} MTLSize;

typedef struct MTLResourceID {
    uint64_t _impl;
} MTLResourceID;

#endif /* SOFTMETAL_TYPES_H */
