# hwloc tells which cores, memory and NICs are beside which GPU. Without it the plugin still sees NICs and their links.
AC_DEFUN([MUSTER_HWLOC], [
  AC_ARG_WITH([hwloc], [AS_HELP_STRING([--without-hwloc], [do not look at cores, memory and PCI devices @<:@auto@:>@])], [],
              [with_hwloc=auto])
  have_hwloc=no
  AS_IF([test "x$with_hwloc" != xno], [PKG_CHECK_MODULES([HWLOC], [hwloc >= 2.1], [have_hwloc=yes], [have_hwloc=no])])
  AS_IF([test "x$with_hwloc" = xyes && test "x$have_hwloc" = xno],
        [AC_MSG_ERROR([hwloc 2.1 or newer not found; on Debian: apt-get install libhwloc-dev])])
  AM_CONDITIONAL([HAVE_HWLOC], [test "x$have_hwloc" = xyes])
])
