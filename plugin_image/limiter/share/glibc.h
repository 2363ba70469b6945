/* The oldest C library that the tenants' images may have: 2.17. What has newer versions of its
 * symbols is asked for by the old ones. */
#if defined(__x86_64__)
#define OLD(name, version) __asm__(".symver " #name "," #name "@" version)
OLD(dlopen, "GLIBC_2.2.5");
OLD(dlsym, "GLIBC_2.2.5");
OLD(dladdr, "GLIBC_2.2.5");
OLD(dlinfo, "GLIBC_2.3.3");
OLD(fcntl, "GLIBC_2.2.5");
OLD(__isoc23_sscanf, "GLIBC_2.7");
OLD(memcpy, "GLIBC_2.2.5");
#endif
