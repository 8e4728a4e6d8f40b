// all.cpp: one translation unit, since torch's headers take most of the time.
#include "device.cpp"
#include "functions.cpp"
#include "memory.cpp"
#include "operators.cpp"
#include "queue.cpp"
#include "refusals.cpp"
#include "shaders.cpp"
