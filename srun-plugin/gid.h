/*
 * gid.h - which of a RoCE port's GIDs routes: of type RoCE v2, and made from an IPv4 address (::ffff:a.b.c.d). Its
 * index depends on the node's addresses, so that NCCL_IB_GID_INDEX=3 is right on many nodes, but not on all. NCCL 2.21
 * and later look for it themselves.
 */
#ifndef MUSTER_SRUN_PLUGIN_GID_H
#define MUSTER_SRUN_PLUGIN_GID_H

/*
 * The lowest index of such a GID of `hca` ("mlx5_0:1"; port 1 without ":1"), from the sysfs beneath `root`, "/" for
 * this machine's or a saved one's. -1 where there is none: InfiniBand, RoCE v1 or IPv6 only, no such port.
 */
int gid_index(const char *root, const char *hca);

#endif
