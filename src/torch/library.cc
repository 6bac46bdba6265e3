// Every schema of the library, on one screen.
#include <ATen/core/enum_tag.h>
#include <torch/library.h>

#include "torch/out_variant.h"

namespace {

const std::vector<at::Tag> kTags = {at::Tag::pt2_compliant_tag, at::Tag::flexible_layout};
#if SAFEOPS_HAS_TAG_OUT
const std::vector<at::Tag> kOutTags = {at::Tag::pt2_compliant_tag, at::Tag::out};
#else
const std::vector<at::Tag> kOutTags = {at::Tag::pt2_compliant_tag};
#endif

}  // namespace

TORCH_LIBRARY(safeops, library) {
  library.def(
      "normalize(Tensor self, float p=2.0, int[1] dim=1, float? eps=None, str policy=\"\") -> "
      "Tensor",
      kTags);
  library.def(
      "normalize.out(Tensor self, float p=2.0, int[1] dim=1, float? eps=None, str policy=\"\", *, "
      "Tensor(a!) out) "
      "-> " SAFEOPS_OUT_SCHEMA,
      kOutTags);
  library.def(
      "_normalize_forward(Tensor self, float p, int[] dim, float eps, str policy) -> (Tensor out, "
      "Tensor norm)",
      kTags);
  library.def(
      "_normalize_backward(Tensor grad, Tensor self, Tensor norm, float p, int[] dim, float eps, "
      "str policy) -> Tensor",
      kTags);
}
