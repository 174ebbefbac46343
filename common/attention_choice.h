/* attention_choice.h - the choice between attention kernels: of the job file, and of a device. */
#ifndef MUSTER_COMMON_ATTENTION_CHOICE_H
#define MUSTER_COMMON_ATTENTION_CHOICE_H

/* AUTO: cuDNN's kernels for shapes at which they are known to be faster, else muster's. OWN: muster's. CUDNN: cuDNN's
 * for every shape that cuDNN takes. */
enum attention_choice { ATTENTION_AUTO, ATTENTION_OWN, ATTENTION_CUDNN };

#endif
