# A C++17 compiler, for tests only: where there is one, CUDA kernels are also compiled for the CPU and run there.
AC_DEFUN([MUSTER_CXX], [
  AC_CACHE_CHECK([whether $CXX compiles C++17], [muster_cv_cxx17], [
    AC_LANG_PUSH([C++])
    muster_save_CXXFLAGS=$CXXFLAGS
    CXXFLAGS="$CXXFLAGS -std=c++17"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[template <class T> int f(T x) { if constexpr (sizeof x > 1) return 0; return 1; }]],
                                       [[return f(1);]])], [muster_cv_cxx17=yes], [muster_cv_cxx17=no])
    CXXFLAGS=$muster_save_CXXFLAGS
    AC_LANG_POP([C++])
  ])
  # No library of C++ is needed: programs are linked as C. Kernels read arrays in 16-byte pieces, whatever their type.
  CXXFLAGS_MUSTER="-std=c++17 -fno-exceptions -fno-rtti -fno-threadsafe-statics -fno-strict-aliasing"
  CXXFLAGS_WARN="-Wall -Wextra -Wpointer-arith -Wwrite-strings -Wvla -Wformat=2 -Wundef -Wno-unknown-pragmas"
  AS_IF([test "x$enable_werror" = xyes], [CXXFLAGS_WARN="$CXXFLAGS_WARN -Werror"])
  AC_SUBST([CXXFLAGS_MUSTER])
  AC_SUBST([CXXFLAGS_WARN])
  AS_IF([test "x$muster_cv_cxx17" = xyes], [AC_DEFINE([HAVE_EMULATED_CUDA], [1], [tests can run CUDA kernels on the CPU])])
  AM_CONDITIONAL([HAVE_CXX], [test "x$muster_cv_cxx17" = xyes])
])
