#include "kernels/cpu/vector/vector.h"

#define ISA_STRING(isa) #isa
#define ISA_NAME(isa)   ISA_STRING(isa)

#define SET_OPERATION(name) .name = ISA(name),

const struct vector_kernels ISA(vector_kernels) = {
    .isa = ISA_NAME(KERNELS_ISA),
    .op = {KERNELS_OPERATIONS(SET_OPERATION)},
    .epilogue = ISA(epilogue),
    .widen = ISA(widen),
};
