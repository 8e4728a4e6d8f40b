/* check_weak.h: lets the run time link before the checker is there; goes when it comes.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: any.
 */
#ifndef SOFT_CHECK_WEAK_H
#define SOFT_CHECK_WEAK_H

#pragma weak soft_check_begin
#pragma weak soft_check_group
#pragma weak soft_check_place
#pragma weak soft_check_switch
#pragma weak soft_check_wait
#pragma weak soft_check_open
#pragma weak soft_check_exchange
#pragma weak soft_check_return
#pragma weak soft_check_access
#pragma weak soft_check_out_of_bounds
#pragma weak soft_check_end

#endif /* SOFT_CHECK_WEAK_H */
