// A library that is loaded through LD_PRELOAD.
__attribute__((constructor)) static void loaded(void) {}
