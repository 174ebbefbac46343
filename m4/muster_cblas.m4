# CBLAS stands in where oneDNN is missing; one of the two must be there.
AC_DEFUN([MUSTER_CBLAS], [
  have_cblas=no
  PKG_CHECK_MODULES([CBLAS], [openblas], [have_cblas=yes],
    [PKG_CHECK_MODULES([CBLAS], [cblas], [have_cblas=yes], [have_cblas=no])])
  AS_IF([test "x$have_cblas" = xyes], [AC_DEFINE([HAVE_CBLAS], [1], [CBLAS matrix products])])
  AS_IF([test "x$have_onednn$have_cblas" = xnono],
        [AC_MSG_ERROR([neither oneDNN nor a CBLAS was found; on Debian: apt-get install libdnnl-dev])])
  AM_CONDITIONAL([HAVE_CBLAS], [test "x$have_cblas" = xyes])
])
