#include <ATen/core/enum_tag.h>
#include <torch/library.h>

#include "torch/schemas.h"

namespace {

const std::vector<at::Tag> kTags = {at::Tag::pt2_compliant_tag, at::Tag::flexible_layout};
const std::vector<at::Tag> kWritingTags = {at::Tag::pt2_compliant_tag};

}  // namespace

TORCH_LIBRARY(safeops, library) {
  for (const char* schema : safeops::kSchemas) {
    library.def(schema, safeops::writes_argument(schema) ? kWritingTags : kTags);
  }
}
