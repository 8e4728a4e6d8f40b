/* storage_bytes.h: bytes in and out of a storage, whatever its mode.
 *
 * Calls:   staging.h, where the storage is private.
 * Threads: any, without the GIL; every function waits for our GPU work on the buffer.
 * Result:  BRIDGE_COMMAND_FAILED: that work failed, or some before it on its stream.
 */
#ifndef MD_STORAGE_BYTES_H
#define MD_STORAGE_BYTES_H

#include "metal/storage.h"

bridge_status storage_download(metal_storage *storage, size_t offset_bytes, size_t nbytes,
                               void *out, bridge_error *error);
bridge_status storage_upload(metal_storage *storage, size_t offset_bytes, size_t nbytes,
                             const void *bytes, bridge_error *error);
/* Set every byte of a range. */
bridge_status storage_set_bytes(metal_storage *storage, size_t offset_bytes, size_t nbytes,
                                uint8_t value, bridge_error *error);

#endif /* MD_STORAGE_BYTES_H */
