# Needs MUSTER_CXX: a shim of C++ is the only user.
AC_DEFUN([MUSTER_SENTENCEPIECE], [
  AC_ARG_WITH([sentencepiece], [AS_HELP_STRING([--with-sentencepiece], [tokenizers of SentencePiece models @<:@auto@:>@])], [], [with_sentencepiece=auto])
  have_sentencepiece=no
  AS_IF([test "x$with_sentencepiece" != xno], [
    AS_IF([test "x$muster_cv_cxx17" = xyes], [PKG_CHECK_MODULES([SENTENCEPIECE], [sentencepiece], [have_sentencepiece=yes], [:])])
    AS_IF([test "x$with_sentencepiece$have_sentencepiece" = xyesno], [AC_MSG_ERROR([libsentencepiece or a C++17 compiler not found; on Debian: apt-get install libsentencepiece-dev g++])])])
  # Programs are linked as C.
  SENTENCEPIECE_LIBS="-lsentencepiece -lsentencepiece_train -lstdc++"
  AS_IF([test "x$have_sentencepiece" = xyes], [AC_DEFINE([HAVE_SENTENCEPIECE], [1], [tokenizers of SentencePiece models])])
  AC_SUBST([SENTENCEPIECE_LIBS])
  AM_CONDITIONAL([HAVE_SENTENCEPIECE], [test "x$have_sentencepiece" = xyes])
])
