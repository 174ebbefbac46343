# What was found, and what is missing because of what was not.
AC_DEFUN([MUSTER_SUMMARY], [
  AS_IF([test "x$have_onednn" = xyes], [s_mm="oneDNN"], [s_mm="CBLAS (slower: install libdnnl-dev)"])
  AS_IF([test "x$have_mpi" = xyes], [s_mpi="$mpi_title"], [s_mpi="none: muster-train runs on one process only (install libmpich-dev)"])
  AS_IF([test "x$have_slurm" = xyes], [s_slurm="for Slurm $slurm_version of ${SLURM_DIR:-/usr}"],
        [s_slurm="not built: srun --muster will not work (install libslurm-dev slurm-wlm-basic-plugins-dev)"])
  AS_IF([test "x$have_hwloc" = xyes], [s_node="hwloc"],
        [s_node="NICs only: cores, memory and GPUs are not known (install libhwloc-dev)"])
  AS_IF([test "x$muster_cv_isa_x86" = xyes], [s_isa="baseline, x86-64-v3, x86-64-v4; chosen at run time"], [s_isa="baseline only"])
  AS_IF([test "x$have_cmocka" = xyes], [s_test="cmocka"], [s_test="none: make check has nothing to run (install libcmocka-dev, or ./setup --tests)"])
  AS_IF([test "x$have_cuda" = xyes], [s_gpu="CUDA of $CUDA_ROOT; NCCL $have_nccl, cuDNN $have_cudnn"], [s_gpu="none: $cuda_missing"])
  AS_IF([test "x$have_sentencepiece" = xyes], [s_tokens="all kinds"], [s_tokens="no SentencePiece .model (install libsentencepiece-dev)"])
  AS_IF([test "x$SCDOC" != x], [s_man="scdoc"], [s_man="not built (install scdoc)"])
  AS_ECHO(["
muster $PACKAGE_VERSION
  matrix products   $s_mm
  vector kernels    $s_isa
  CPU collectives   $s_mpi
  SPANK plugin      $s_slurm
  node topology     $s_node
  GPU               $s_gpu
  tokenizers        $s_tokens
  C tests           $s_test
  man pages         $s_man
  sanitizers        $enable_sanitizers
  prefix            $prefix
"])
])
