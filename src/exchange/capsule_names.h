/* capsule_names.h: the names of DLPack's capsules.  SPEC python_spec, dlpack.h. */
#ifndef MD_CAPSULE_NAMES_H
#define MD_CAPSULE_NAMES_H

/* Of a tensor, before and after a consumer took it. */
#define CAPSULE_LEGACY "dltensor"
#define CAPSULE_LEGACY_USED "used_dltensor"
#define CAPSULE_VERSIONED "dltensor_versioned"
#define CAPSULE_VERSIONED_USED "used_dltensor_versioned"

/* Of a type's table of C functions. */
#define CAPSULE_EXCHANGE_API "dlpack_exchange_api"

#endif /* MD_CAPSULE_NAMES_H */
