AC_DEFUN([MUSTER_SCDOC], [
  AC_CHECK_PROG([SCDOC], [scdoc], [scdoc])
  AM_CONDITIONAL([HAVE_SCDOC], [test "x$SCDOC" != x])
])
