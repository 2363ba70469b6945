/* The oldest C library that the tenants' images may have: 2.17, the first of arm64. What has newer versions of its
 * symbols is asked for by the old ones. */
#define OLD(name, version) __asm__(".symver " #name "," #name "@" version)
#if defined(__x86_64__)
OLD(dlopen, "GLIBC_2.2.5");
OLD(dlsym, "GLIBC_2.2.5");
OLD(dladdr, "GLIBC_2.2.5");
OLD(dlinfo, "GLIBC_2.3.3");
OLD(fcntl, "GLIBC_2.2.5");
OLD(__isoc23_sscanf, "GLIBC_2.7");
OLD(memcpy, "GLIBC_2.2.5");
#elif defined(__aarch64__)
OLD(dlopen, "GLIBC_2.17");
OLD(dlsym, "GLIBC_2.17");
OLD(dladdr, "GLIBC_2.17");
OLD(dlinfo, "GLIBC_2.17");
OLD(fcntl, "GLIBC_2.17");
#endif
