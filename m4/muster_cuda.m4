# Looks for nvcc. This version has no CUDA kernels yet, so finding it switches nothing on; asking for it is an error.
AC_DEFUN([MUSTER_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda], [GPU kernels (none in this version) @<:@auto@:>@])], [], [with_cuda=auto])
  have_cuda=no
  AS_IF([test "x$with_cuda" = xyes], [AC_MSG_ERROR([this version of muster has no CUDA kernels yet; configure without --with-cuda])])
])
