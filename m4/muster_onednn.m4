AC_DEFUN([MUSTER_ONEDNN], [
  AC_ARG_WITH([onednn], [AS_HELP_STRING([--with-onednn], [matrix products on CPUs through oneDNN @<:@auto@:>@])], [], [with_onednn=auto])
  have_onednn=no
  AS_IF([test "x$with_onednn" != xno], [
    AC_CHECK_HEADER([oneapi/dnnl/dnnl.h],
      [AC_CHECK_LIB([dnnl], [dnnl_sgemm], [have_onednn=yes ONEDNN_LIBS=-ldnnl])])
    AS_IF([test "x$with_onednn$have_onednn" = xyesno], [AC_MSG_ERROR([oneDNN not found; on Debian: apt-get install libdnnl-dev])])])
  AS_IF([test "x$have_onednn" = xyes], [AC_DEFINE([HAVE_ONEDNN], [1], [oneDNN matrix products])])
  AC_SUBST([ONEDNN_LIBS])
  AM_CONDITIONAL([HAVE_ONEDNN], [test "x$have_onednn" = xyes])
])
