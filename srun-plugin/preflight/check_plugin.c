#include <stdlib.h>

#include "srun-plugin/spank/step_plan.h"
#include "srun-plugin/preflight/checks.h"
#include "srun-plugin/preflight/say.h"

void check_plugin(void)
{
    if (getenv(STEP_PLAN_NAME))
        say("problem",
            "slurmd has not loaded spank_muster.so there: its ranks would have no RANK and no MASTER_ADDR; is it in "
            "the node's plugstack.conf?");
}
