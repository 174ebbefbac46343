AC_DEFUN([MUSTER_OPENMP], [
  AC_OPENMP
  AS_IF([test "x$ac_cv_prog_c_openmp" = xunsupported], [AC_MSG_ERROR([the CPU kernels need a compiler with OpenMP])])
])
