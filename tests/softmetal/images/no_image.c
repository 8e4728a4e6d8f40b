/* no_image.c: a library that is no kernel's. */
int nothing;
