/* softmetal_compiler.h: gives the software Metal its compiler; nothing on a Mac. */
#ifndef MD_SOFTMETAL_COMPILER_H
#define MD_SOFTMETAL_COMPILER_H

/* From now on the software Metal compiles by metal_dlpack.msl, which is imported when it first does. */
void softmetal_compiler_install(void);

#endif /* MD_SOFTMETAL_COMPILER_H */
