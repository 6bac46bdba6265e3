// Reads rows of raw bit patterns and masks, and holds every kernel of the softmax family against
// the oracle in long double and against the scalar program: values and gradients within their
// bounds, hits exactly, the same bits on targets that are alike, and no bit of a row that is not
// empty changed by a policy.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bytes.h"
#include "cases/softmax_check.h"
#include "core/simd_target.h"

namespace safeops::cases {
namespace {

struct Input {
  Rows x, g;
  std::optional<Mask> mask;
  SoftmaxTrial trial;
};

/// Few bytes reach a whole mask: its bits repeat with the period that was read.
Mask read_mask(Bytes& bytes, std::size_t rows, std::size_t length) {
  const std::size_t period = 1 + bytes.below(64);
  const std::uint64_t pattern = bytes.word(8);
  Mask mask(rows, length, true);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t i = 0; i < length; ++i)
      mask.set(r, i, (pattern >> (r * length + i) % period & 1) != 0);
  }
  return mask;
}

/// Raw patterns are mostly far apart, so that one term is 1 and the rest 0. Half of the inputs are
/// brought near each other.
void bring_near(Rows& x, std::size_t choice) {
  constexpr double kCenters[] = {0, 1, 87, 1023, 1024, 1e4};
  if (choice >= std::size(kCenters)) return;
  for (std::uint64_t& bits : x.bits) {
    const double value = decode(x.element, bits);
    if (std::isfinite(value)) bits = encode(x.element, kCenters[choice] + std::fmod(value, 120.0));
  }
}

Input read(Bytes& bytes) {
  constexpr std::size_t kLong[] = {63, 64, 65, 127, 255, 256, 257, 300, 513, 777, 8193};
  Input input;
  SoftmaxTrial& trial = input.trial;
  const Element element = kElements[bytes.below(4)];
  trial.kind = kSoftmaxKinds[bytes.below(3)];
  trial.policy = kAllPolicies[bytes.below(5)];
  const std::size_t way = bytes.below(16);
  const std::size_t shape = bytes.below(256);
  const std::size_t rows_wanted = 1 + (bytes.below(4) == 0 ? bytes.below(40) : bytes.below(3));
  const std::size_t length = shape < 240 ? 1 + shape % 40 : kLong[shape % std::size(kLong)];
  const std::size_t rows = std::min(rows_wanted, 1 + 640 / length);
  const std::size_t gap = bytes.below(4), turn = bytes.below(256), near = bytes.below(12);
  if (way % 2 == 1) set_kind(trial, RowLayout::Kind::side_by_side);
  if (rows % 3 == 0) set_kept(trial, {3, rows / 3});
  for (Arrangement* arrangement : {&trial.input, &trial.second, &trial.output})
    arrangement->gap = gap;
  const bool half = format(element).bytes == 2;
  if (half && way / 2 % 2 == 1) trial.result = Element::float32;
  if (way / 4 % 2 == 1) input.mask = read_mask(bytes, rows, length);
  trial.mask_arrangement.transposed = way / 8 == 1;
  trial.mask_arrangement.stretch = 1 + gap;
  input.x = read_rows(bytes, element, rows, length);
  // The same patterns in another order: gradients as wild as the values, without twice the bytes.
  input.g = input.x;
  const auto middle =
      input.g.bits.begin() + static_cast<std::ptrdiff_t>(turn % input.g.bits.size());
  std::rotate(input.g.bits.begin(), middle, input.g.bits.end());
  bring_near(input.x, near);
  if (trial.result) {
    Rows wider(*trial.result, rows, length);
    for (std::size_t i = 0; i < wider.bits.size(); ++i)
      wider.bits[i] = encode(*trial.result, decode(element, input.g.bits[i]));
    input.g = wider;
  }
  return input;
}

/// long double is 11 bits wider than float64: half an ulp of float64 at worst, far below its
/// bounds.
Report check_cheaply(const Input& input, const SoftmaxBoth& outcome, const SoftmaxTrial& trial) {
  Report report = detail::check_forward_in<long double>(input.x, outcome.forward, trial);
  const bool per_row = trial.kind == SoftmaxKind::logsumexp;
  report.merge(detail::check_backward_in<long double>(gradient_for(input.g, trial.kind), input.x,
                                                      per_row ? input.x : outcome.forward.values,
                                                      outcome.backward, trial));
  return report;
}

bool same_hits(const SoftmaxBoth& a, const SoftmaxBoth& b) {
  return std::memcmp(&a.forward.hits, &b.forward.hits, sizeof(Hits)) == 0 &&
         std::memcmp(&a.backward.hits, &b.backward.hits, sizeof(Hits)) == 0;
}

/// Every kernel, the oracle asked once per distinct outcome.
void check_kernels(const Input& input) {
  SoftmaxTrial trial = input.trial;
  trial.road = Road::plain;
  const SoftmaxBoth plain = both(input.x, input.g, trial);
  const Report report = check_cheaply(input, plain, trial);
  if (!report.good()) stop("scalar program", report.failure);
  trial.road = Road::dispatched;
  std::vector<std::pair<bool, SoftmaxBoth>> seen;
  for (const std::int64_t target : supported_targets()) {
    use_target(target);
    const bool fused = std::string(target_name(target)).rfind("AVX", 0) == 0;
    const SoftmaxBoth outcome = both(input.x, input.g, trial);
    if (!same_hits(outcome, plain))
      stop(target_name(target), "hits are not those of the scalar program: " + spelled(trial));
    bool known = false;
    for (const auto& [earlier_fused, earlier] : seen) {
      const std::string differs = difference(outcome, earlier);
      known |= differs.empty();
      if (fused == earlier_fused && !differs.empty())
        stop(target_name(target), "not the bits of another target: " + differs);
    }
    if (known) continue;
    const Report found = check_cheaply(input, outcome, trial);
    if (!found.good()) stop(target_name(target), found.failure);
    seen.emplace_back(fused, outcome);
  }
  use_target(0);
}

void check_invariance(const Input& input) {
  const SoftmaxBoth reference = both(input.x, input.g, input.trial);
  for (const Policy policy : kAllPolicies) {
    if (policy == input.trial.policy) continue;
    SoftmaxTrial trial = input.trial;
    trial.policy = policy;
    const SoftmaxBoth other = both(input.x, input.g, trial);
    for (std::size_t r = 0; r < input.x.rows; ++r) {
      if (reference.forward.saved[r] == -kInfinity) continue;
      if (reference.forward.values.same_row(r, other.forward.values, r) &&
          reference.backward.values.same_row(r, other.backward.values, r)) {
        continue;
      }
      stop("policy " + std::string(name(policy)) + " against " +
               std::string(name(input.trial.policy)),
           "row " + std::to_string(r) + " differs: " + describe(input.x, r));
    }
  }
}

/// Where the operands lie, and that a mask of true is given, must not show.
void check_storage(const Input& input) {
  SoftmaxTrial trial = input.trial;
  const SoftmaxBoth reference = both(input.x, input.g, trial);
  trial.input.gap = trial.second.gap = trial.output.gap = 0;
  trial.input.shift = 3;
  trial.output.shift = 1;
  trial.mask_arrangement = {};
  trial.streams = true;
  const Mask all(input.x.rows, input.x.length, true);
  if (trial.mask == nullptr) trial.mask = &all;
  const std::string differs = difference(both(input.x, input.g, trial), reference);
  if (!differs.empty()) stop("another arrangement", differs + ": " + spelled(trial));
}

}  // namespace
}  // namespace safeops::cases

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace safeops;
  cases::Bytes bytes(data, size);
  cases::Input input = cases::read(bytes);
  if (input.mask) input.trial.mask = &*input.mask;
  cases::check_kernels(input);
  cases::check_invariance(input);
  cases::check_storage(input);
  return 0;
}
