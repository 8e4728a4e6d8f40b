// all.cpp: one translation unit, since torch's headers take most of the time.  A part sees those before it.
#include "device.cpp"
#include "functions.cpp"
#include "memory.cpp"

#include "call.cpp"

#include "call_results.cpp"

#include "operators.cpp"

#include "queue.cpp"

#include "queue_uses.cpp"

#include "queue_events.cpp"

#include "refusals.cpp"
#include "shaders.cpp"
