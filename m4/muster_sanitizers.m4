# --enable-sanitizers: AddressSanitizer and UndefinedBehaviorSanitizer in everything.
AC_DEFUN([MUSTER_SANITIZERS], [
  AC_ARG_ENABLE([sanitizers], [AS_HELP_STRING([--enable-sanitizers], [build with address and undefined-behaviour sanitizers])],
                [], [enable_sanitizers=no])
  AS_IF([test "x$enable_sanitizers" = xyes],
        [CFLAGS_SAN="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
         AC_DEFINE([MUSTER_SANITIZED], [1], [built with sanitizers])])
  AC_SUBST([CFLAGS_SAN])
  AM_CONDITIONAL([SANITIZED], [test "x$enable_sanitizers" = xyes])
])
