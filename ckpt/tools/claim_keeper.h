/*
 * claim_keeper.h - the process that keeps a trainer's claim on its checkpoint directory: muster-ckptd --claim. If the
 * file system does not answer, only this process waits; the trainer continues, and ends without it.
 *
 * It refreshes the heartbeat, and checks whether another run has taken the directory over: every two seconds, and when
 * it reads CLAIM_LOOK from its input, which it answers by an empty line. It ends
 *   - when it reads CLAIM_RELEASE, and has released the directory;
 *   - at once when its input or its parent, the trainer, ends: the claim stays as it is;
 *   - with CODE_CONFIG, when the directory is lost: the reason is on its output.
 */
#ifndef MUSTER_CKPT_TOOLS_CLAIM_KEEPER_H
#define MUSTER_CKPT_TOOLS_CLAIM_KEEPER_H

enum { CLAIM_LOOK = 'l', CLAIM_RELEASE = 'r' };

#endif
