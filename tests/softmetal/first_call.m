/* first_call.m: lists the devices before it makes an object or asks for a setting, and prints
 * how many there are.
 */
#import <Metal/Metal.h>

#include <stdio.h>

int
main(void)
{
    NSArray *devices = MTLCopyAllDevices();
    printf("%lu\n", (unsigned long)[devices count]);
    [devices release];
    return 0;
}
