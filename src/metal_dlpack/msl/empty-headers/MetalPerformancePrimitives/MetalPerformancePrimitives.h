#error <MetalPerformancePrimitives/MetalPerformancePrimitives.h>: Metal Performance Primitives run on a Mac only.
