# The instruction sets that kernels/cpu is compiled for, beside the compiler's default. One is chosen when a program
# starts.
AC_DEFUN([MUSTER_ISA], [
  AC_CACHE_CHECK([whether the compiler has x86-64-v3 and x86-64-v4], [muster_cv_isa_x86], [
    muster_save_CFLAGS="$CFLAGS"
    CFLAGS="$CFLAGS -march=x86-64-v4"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <immintrin.h>]], [[return (int)_mm512_reduce_add_ps(_mm512_setzero_ps());]])],
                      [muster_cv_isa_x86=yes], [muster_cv_isa_x86=no])
    CFLAGS="$muster_save_CFLAGS"])
  AS_IF([test "x$muster_cv_isa_x86" = xyes], [AC_DEFINE([HAVE_ISA_X86], [1], [kernels are built for AVX2 and AVX-512 too])])
  AM_CONDITIONAL([ISA_X86], [test "x$muster_cv_isa_x86" = xyes])
])
