# GPU kernels. nvcc makes them; the run-time library is linked statically and finds the driver when a program runs, and
# cuBLASLt, NCCL and cuDNN are opened then too, so that one build serves nodes with GPUs and without. Only headers are
# needed of those three.
AC_DEFUN([MUSTER_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@], [GPU kernels, with the CUDA of DIR or of the nvcc in PATH @<:@auto@:>@])], [], [with_cuda=auto])
  AC_ARG_VAR([NVCC], [CUDA compiler])
  AC_ARG_VAR([NVCCFLAGS], [its flags])
  AC_ARG_VAR([CUDA_TARGETS], [the GPUs to build for, as flags of nvcc])
  have_cuda=no cuda_missing=
  AS_CASE([$with_cuda],
    [no], [cuda_missing="configured without"],
    [yes|auto], [AC_PATH_PROG([NVCC], [nvcc], [], [${CUDA_HOME:-/usr/local/cuda}/bin$PATH_SEPARATOR$PATH])],
    [NVCC=$with_cuda/bin/nvcc])
  AS_IF([test "x$with_cuda" != xno], [
    # nvcc says where its CUDA is; a script of that name in PATH may lie elsewhere.
    AS_IF([test -x "$NVCC"], [CUDA_ROOT=`"$NVCC" -dryrun -x cu -c /dev/null 2>&1 | sed -n 's/^#\\$ TOP=//p'`],
          [cuda_missing="no nvcc"])
    AS_IF([test -z "$cuda_missing" && test -d "$CUDA_ROOT"], [
      CUDA_ROOT=`cd "$CUDA_ROOT" && pwd`
      AS_IF([test -d "$CUDA_ROOT/lib64"], [cuda_lib=$CUDA_ROOT/lib64], [cuda_lib=$CUDA_ROOT/lib])
      CUDA_CFLAGS="-isystem $CUDA_ROOT/include"
      CUDA_LIBS="-L$cuda_lib -lcudart_static -ldl -lrt -lpthread"
      muster_save_CPPFLAGS=$CPPFLAGS muster_save_LIBS=$LIBS
      CPPFLAGS="$CPPFLAGS $CUDA_CFLAGS" LIBS="$CUDA_LIBS $LIBS"
      AC_MSG_CHECKING([for CUDA's run-time library and the headers of cuBLASLt])
      AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cuda_runtime_api.h>
#include <cublasLt.h>]], [[int n; return cudaGetDeviceCount(&n) != cudaSuccess || CUBLAS_VER_MAJOR < 12;]])],
        [have_cuda=yes], [cuda_missing="no libcudart_static.a or no cublasLt.h in $CUDA_ROOT"])
      AC_MSG_RESULT([$have_cuda])
      AC_CHECK_HEADER([nccl.h], [have_nccl=yes], [have_nccl=no])
      CPPFLAGS=$muster_save_CPPFLAGS LIBS=$muster_save_LIBS
    ], [test -z "$cuda_missing"], [cuda_missing="$NVCC does not say where its CUDA is"])])
  AS_IF([test "x$have_cuda" = xno], [
    have_nccl=no CUDA_CFLAGS= CUDA_LIBS=
    AS_IF([test "x$with_cuda" != xno && test "x$with_cuda" != xauto],
          [AC_MSG_ERROR([GPU kernels wanted, but: $cuda_missing; install CUDA's compiler, or name its place with --with-cuda=DIR])])])
  # A kernel for 9.0 may use what only 9.0a has, under __CUDA_ARCH_FEAT_SM90_ALL; the PTX serves what comes after it.
  : ${CUDA_TARGETS="-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_90,code=compute_90"}
  : ${NVCCFLAGS="-O3 -lineinfo"}
  AS_IF([test "x$enable_werror" = xyes], [NVCC_WARN="-Werror all-warnings"], [NVCC_WARN=])
  AS_IF([test "x$have_cuda" = xyes], [AC_DEFINE([HAVE_CUDA], [1], [GPU kernels])])
  AS_IF([test "x$have_nccl" = xyes], [AC_DEFINE([HAVE_NCCL], [1], [NCCL's header was there])])
  AC_SUBST([CUDA_ROOT])
  AC_SUBST([CUDA_CFLAGS])
  AC_SUBST([CUDA_LIBS])
  AC_SUBST([NVCC_WARN])
  AM_CONDITIONAL([HAVE_CUDA], [test "x$have_cuda" = xyes])
  AM_CONDITIONAL([HAVE_NCCL], [test "x$have_nccl" = xyes])
])
