# hwloc finds which cores, memory and NICs are beside which GPU. Without it the plugin still sees NICs and their links.
# Its headers only: the plugin and the tools load the library when they need it.
AC_DEFUN([MUSTER_HWLOC], [
  AC_ARG_WITH([hwloc], [AS_HELP_STRING([--without-hwloc], [do not read cores, memory and PCI devices @<:@auto@:>@])], [],
              [with_hwloc=auto])
  have_hwloc=no
  AS_IF([test "x$with_hwloc" != xno], [PKG_CHECK_MODULES([HWLOC], [hwloc >= 2.1], [have_hwloc=yes], [have_hwloc=no])])
  AS_IF([test "x$with_hwloc" = xyes && test "x$have_hwloc" = xno],
        [AC_MSG_ERROR([hwloc 2.1 or newer not found; on Debian: apt-get install libhwloc-dev])])
  AS_IF([test "x$have_hwloc" = xyes], [AC_DEFINE([HAVE_HWLOC], [1], [hwloc's headers are there])])
  AM_CONDITIONAL([HAVE_HWLOC], [test "x$have_hwloc" = xyes])
])
