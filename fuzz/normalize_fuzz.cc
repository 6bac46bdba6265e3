// Reads rows of raw bit patterns, and holds every kernel of normalize against the oracle: values
// and gradients within their bounds, hits exactly, and no bit of a regular row changed by a policy.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "bytes.h"
#include "cases/normalize_check.h"
#include "core/simd_target.h"

namespace safeops::cases {
namespace {

struct Input {
  Rows x, g;
  Trial trial;
  Policy policy = Policy::stock;
  std::optional<double> eps;
};

/// How the call names its eps. A norm often equals the first magnitude, and equality is where a
/// threshold can err.
struct EpsChoice {
  enum class Kind : std::uint8_t { none, usual, first_magnitude, any } kind;
  double value;

  std::optional<double> of(const Rows& x) const {
    if (kind == Kind::none) return std::nullopt;
    return kind == Kind::first_magnitude ? std::fabs(x.at(0, 0)) : value;
  }
};

EpsChoice read_eps(Bytes& bytes) {
  constexpr double kUsual[] = {0.0, 1e-12, 1e-3, 1.0, 1e10};
  const auto kind = static_cast<EpsChoice::Kind>(bytes.below(4));
  if (kind == EpsChoice::Kind::usual) return {kind, kUsual[bytes.below(std::size(kUsual))]};
  return {kind, kind == EpsChoice::Kind::any ? decode(Element::float64, bytes.word(8)) : 0.0};
}

Input read(Bytes& bytes) {
  constexpr double kOrders[] = {2, 1, kInfinity};
  constexpr std::size_t kLong[] = {63, 64, 65, 127, 255, 256, 257, 300, 513, 777};
  Input input;
  const Element element = kElements[bytes.below(4)];
  input.trial.p = kOrders[bytes.below(3)];
  input.policy = kAllPolicies[bytes.below(5)];
  const bool side_by_side = bytes.below(2) == 1;
  const std::size_t shape = bytes.below(256);
  // Mostly few rows: the oracle costs more than the kernels.
  const std::size_t rows_wanted = 1 + (bytes.below(4) == 0 ? bytes.below(40) : bytes.below(3));
  const std::size_t length = shape < 240 ? 1 + shape % 40 : kLong[shape % std::size(kLong)];
  const std::size_t rows = std::min(rows_wanted, 1 + 640 / length);
  const std::size_t gap = bytes.below(4), turn = bytes.below(256);
  for (Arrangement* arrangement : {&input.trial.input, &input.trial.second, &input.trial.output}) {
    if (side_by_side) arrangement->kind = RowLayout::Kind::side_by_side;
    if (rows % 3 == 0) arrangement->kept = {3, rows / 3};
    arrangement->gap = gap;
  }
  const EpsChoice eps = read_eps(bytes);
  input.x = read_rows(bytes, element, rows, length);
  input.eps = eps.of(input.x);
  // The same patterns in another order: gradients as wild as the values, without twice the bytes.
  input.g = input.x;
  const auto middle =
      input.g.bits.begin() + static_cast<std::ptrdiff_t>(turn % input.g.bits.size());
  std::rotate(input.g.bits.begin(), middle, input.g.bits.end());
  return input;
}

bool same(const Outcome& a, const Outcome& b) {
  return a.values == b.values &&
         std::memcmp(a.saved.data(), b.saved.data(), a.saved.size() * sizeof(double)) == 0 &&
         std::memcmp(&a.hits, &b.hits, sizeof(Hits)) == 0 && a.disturbed == b.disturbed;
}

struct Both {
  Outcome forward, backward;
};

Both call(const Input& input, Policy policy, const Trial& trial) {
  Both both;
  Trial there = trial;
  there.policy = resolved(policy, input.eps, input.x.element, false);
  both.forward = forward(input.x, there);
  there.policy = resolved(policy, input.eps, input.x.element, true);
  both.backward = backward(input.g, input.x, both.forward.saved, there);
  return both;
}

void check(const Input& input, const Both& both, const Trial& trial, const std::string& where) {
  Trial there = trial;
  there.policy = resolved(input.policy, input.eps, input.x.element, false);
  const Report out = check_forward(input.x, both.forward, there);
  if (!out.good()) stop(where + " forward", out.failure);
  there.policy = resolved(input.policy, input.eps, input.x.element, true);
  const Report grad = check_backward(input.g, input.x, both.backward, there);
  if (!grad.good()) stop(where + " backward", grad.failure);
}

/// Every kernel, the oracle asked once per distinct outcome.
void check_kernels(const Input& input) {
  std::vector<Both> seen;
  const auto check_new = [&](const Trial& trial, const std::string& where) {
    const Both both = call(input, input.policy, trial);
    for (const Both& earlier : seen) {
      if (same(both.forward, earlier.forward) && same(both.backward, earlier.backward)) return;
    }
    check(input, both, trial, where);
    seen.push_back(both);
  };
  for (const std::int64_t target : supported_targets()) {
    use_target(target);
    check_new(input.trial, target_name(target));
  }
  use_target(0);
  Trial plain = input.trial;
  plain.road = Road::plain;
  check_new(plain, "scalar program");
}

/// The rows that are regular, or not finite, under either policy.
std::vector<bool> policy_free(const Input& input, const std::vector<Norm>& norms, Policy policy) {
  const Element element = input.x.element;
  const double threshold = std::max(resolved(policy, input.eps, element, false).threshold,
                                    resolved(input.policy, input.eps, element, false).threshold);
  std::vector<bool> result;
  for (const Norm& norm : norms) {
    const RowClass row_class = classify(norm, threshold, norm_is_exact(input.x, input.trial));
    result.push_back(row_class == RowClass::regular || row_class == RowClass::nonfinite);
  }
  return result;
}

void check_invariance(const Input& input) {
  std::vector<Norm> norms;
  for (std::size_t r = 0; r < input.x.rows; ++r)
    norms.push_back(norm_of(input.x, r, input.trial.p, false));
  const Both reference = call(input, input.policy, input.trial);
  for (const Policy policy : kAllPolicies) {
    if (policy == input.policy) continue;
    const auto refusal = resolve_eps(policy, input.eps, kStockEps, input.x.element).refusal;
    if (refusal != ResolvedEps::Refusal::none) continue;
    const Both other = call(input, policy, input.trial);
    const std::vector<bool> compared = policy_free(input, norms, policy);
    for (std::size_t r = 0; r < input.x.rows; ++r) {
      if (!compared[r] || (reference.forward.values.same_row(r, other.forward.values, r) &&
                           reference.backward.values.same_row(r, other.backward.values, r))) {
        continue;
      }
      stop("policy " + std::string(name(policy)) + " against " + std::string(name(input.policy)),
           "row " + std::to_string(r) + " differs: " + describe(input.x, r));
    }
  }
}

}  // namespace
}  // namespace safeops::cases

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace safeops;
  cases::Bytes bytes(data, size);
  const cases::Input input = cases::read(bytes);
  const auto resolved = resolve_eps(input.policy, input.eps, cases::kStockEps, input.x.element);
  if (resolved.refusal != ResolvedEps::Refusal::none) return -1;
  cases::check_kernels(input);
  cases::check_invariance(input);
  return 0;
}
