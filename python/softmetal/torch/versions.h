// versions.h: where the versions of torch differ, from 2.9 on.
#pragma once

#include <torch/version.h>

#define TORCH_IS_FROM(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

// After 2.9 a device says which element types it takes.
#if __has_include(<c10/core/DeviceCapability.h>)
#define TORCH_HAS_CAPABILITY 1
#else
#define TORCH_HAS_CAPABILITY 0
#endif

// From 2.15 on torch.mps has a default stream and a pool of 32, and Tensor.record_stream; before, torch gives the default
// one alone.  The others are there all the same, for who names one by its number.
#define TORCH_HAS_MPS_STREAMS TORCH_IS_FROM(15)
