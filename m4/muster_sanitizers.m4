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

# Whether programs with the thread sanitizer can be built and run here: some kernels place memory where it cannot.
AC_DEFUN([MUSTER_THREAD_SANITIZER], [
  AC_CACHE_CHECK([whether the thread sanitizer works], [muster_cv_tsan], [
    muster_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -fsanitize=thread"
    AC_RUN_IFELSE([AC_LANG_PROGRAM()], [muster_cv_tsan=yes], [muster_cv_tsan=no], [muster_cv_tsan=no])
    CFLAGS=$muster_save_CFLAGS
  ])
  AM_CONDITIONAL([HAVE_TSAN], [test "x$muster_cv_tsan" = xyes && test "x$enable_sanitizers" != xyes])
])
