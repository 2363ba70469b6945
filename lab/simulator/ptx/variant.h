/* Names of the tables of handlers: each file of them is compiled for two kinds of processors. */
#ifndef DIVVY_PTX_VARIANT_H
#define DIVVY_PTX_VARIANT_H

#ifdef DIVVY_AVX2
#define VARIANT(name) name##_avx2
#else
#define VARIANT(name) name##_any
#endif

#endif
