# cuDNN's fused attention, for the CUDA kernels; see muster_cuda.m4.
AC_DEFUN([MUSTER_CUDNN], [
  AC_ARG_WITH([cudnn], [AS_HELP_STRING([--with-cudnn], [cuDNN attention (none in this version) @<:@auto@:>@])], [], [with_cudnn=auto])
  AS_IF([test "x$with_cudnn" = xyes], [AC_MSG_ERROR([this version of muster has no CUDA kernels yet; configure without --with-cudnn])])
])
