// A loaded model: immutable, shared by its sessions, freed with the last of them.
#pragma once

#include "cuvil/runtime.h"
#include "library.h"
#include "model_info.h"

struct cuvil_model {
  int64_t holders;  // the caller and the sessions
  void *library;    // null for a model that was attached
  cuvil::Mapping mapping;
  const void *weights;
  cuvil_run_function run;
  cuvil_shapes_function shapes;
  cuvil::ModelInfo info;
};

namespace cuvil {

void hold_model(cuvil_model *model);

// Whether the model can run with these values of its named dimensions.
bool usable_dimensions(const cuvil_model *model, const int64_t *dimensions);

}  // namespace cuvil
