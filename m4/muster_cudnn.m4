# cuDNN's fused attention, for the CUDA kernels; see muster_cuda.m4. Only its headers: the library is opened at run time.
AC_DEFUN([MUSTER_CUDNN], [
  AC_ARG_WITH([cudnn], [AS_HELP_STRING([--with-cudnn], [cuDNN's fused attention, beside our own @<:@auto@:>@])], [], [with_cudnn=auto])
  have_cudnn=no
  AS_IF([test "x$with_cudnn" != xno && test "x$have_cuda" = xyes], [
    muster_save_CPPFLAGS=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS $CUDA_CFLAGS"
    AC_CHECK_HEADER([cudnn.h], [have_cudnn=yes])
    CPPFLAGS=$muster_save_CPPFLAGS])
  AS_IF([test "x$with_cudnn$have_cudnn" = xyesno], [AC_MSG_ERROR([cuDNN wanted, but there is no cudnn.h beside CUDA's headers, or no CUDA])])
  AS_IF([test "x$have_cudnn" = xyes], [AC_DEFINE([HAVE_CUDNN], [1], [cuDNN's headers were there])])
  AM_CONDITIONAL([HAVE_CUDNN], [test "x$have_cudnn" = xyes])
])
