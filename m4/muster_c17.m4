# The C dialect and the flags that every file is compiled with.
AC_DEFUN([MUSTER_C17], [
  CFLAGS_MUSTER="-std=gnu17 -fno-math-errno -fno-trapping-math -fvisibility=hidden"
  AC_SUBST([CFLAGS_MUSTER])
  AC_SEARCH_LIBS([sqrt], [m])
])
