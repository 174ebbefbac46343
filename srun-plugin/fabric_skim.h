/* fabric_skim.h - which profiles cannot match, without the cost of reading them; private to fabric*.c. */
#ifndef MUSTER_SRUN_PLUGIN_FABRIC_SKIM_H
#define MUSTER_SRUN_PLUGIN_FABRIC_SKIM_H

#include "srun-plugin/fabric.h"

/*
 * False where the profile's match has nics = [ ... ] and names none of the kinds that are expected, gpus = true where
 * none are, or wants more nodes or fewer: it cannot match then, whatever else it says. True for all others, those that
 * only libconfig can make sense of too. Pure.
 */
bool fabric_may_match(const char *text, const struct fabric_expected *expected);

#endif
