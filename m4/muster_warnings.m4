# --enable-werror: warnings are errors. Off for users, whose compilers we have not seen; ./setup and ./check turn it on.
AC_DEFUN([MUSTER_WARNINGS], [
  CFLAGS_WARN="-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wwrite-strings -Wvla -Wformat=2 -Wundef"
  AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [treat warnings as errors])], [], [enable_werror=no])
  AS_IF([test "x$enable_werror" = xyes], [CFLAGS_WARN="$CFLAGS_WARN -Werror"])
  AC_SUBST([CFLAGS_WARN])
])
