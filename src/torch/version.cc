#include <cstring>

#include "safeops/diagnostics.h"

namespace {

// A library built for another torch may fail to load before it can be asked: the package then looks
// for this text in the file.
constexpr char kBuiltFor[] = "safeops built for torch " SAFEOPS_TORCH_VERSION;

}  // namespace

const char* safeops_version() { return SAFEOPS_VERSION; }
const char* safeops_built_for_torch() {
  return kBuiltFor + std::strlen("safeops built for torch ");
}
