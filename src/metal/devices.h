/* devices.h: the machine's Metal devices, found once a process.
 *
 * Owns:    one record a device, with its default queue, for the life of the process.
 * Calls:   metal_bridge.h.  Never Python.
 * Threads: any thread; the table is filled under pthread_once and then only read.
 * Fork:    a child has the table of its parent; it is empty if the parent never asked.
 */
#ifndef MD_DEVICES_H
#define MD_DEVICES_H

#include "metal_bridge.h"

#define DEVICES_MAX 16

typedef struct device_record {
    int index;             /* 0 is the system's default */
    bridge_device *handle; /* owned (+1) by the table */
    bridge_queue *queue;   /* owned (+1) by the table; the library's own copies run here */
    bridge_device_facts facts;
} device_record;

int devices_count(void);
/* The record of an index in 0 .. devices_count() - 1: borrowed, valid for ever. */
const device_record *devices_get(int index);
/* The record of a device by its registry ID; NULL: a device that is not in the table. */
const device_record *devices_find(bridge_device *device);

#endif /* MD_DEVICES_H */
