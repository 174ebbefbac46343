#include "srun-plugin/config_form.h"

const struct config_form config_form = CONFIG_FORM;
