// Every kernel for CUDA on a device, without torch, or on the emulator. One line per launch: what
// ran, a hash of all that it left, and how it compares with the SIMD kernels of this machine.
// Arithmetic is IEEE throughout, so both builds must print the same hashes.
//
// Usage: kernels [--quick] [--raw]. Exits with 1 if something differs from the SIMD kernels that
// may not. --raw leaves scratch memory uninitialized, for a tool that looks for reads of it.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "cases/division_case.h"
#include "cases/normalize_case.h"
#include "cases/random_rows.h"
#include "cases/softmax_case.h"
#include "core/simd_target.h"
#include "mirror.h"

namespace safeops::device_check {
namespace {

using namespace safeops::cases;

constexpr std::uint64_t kSerial = 7;

/// FNV-1a.
class Hash {
 public:
  void add(std::uint64_t word) {
    for (int byte = 0; byte < 8; ++byte, word >>= 8) {
      state_ = (state_ ^ (word & 0xFFu)) * 0x100000001B3u;
    }
  }
  void add(double value) {
    std::uint64_t word = 0x7FF8000000000000u;
    if (value == value) std::memcpy(&word, &value, sizeof word);
    add(word);
  }
  void add(const Hits& hits) {
    for (const Hit& hit : hits.of) add_hit(hit);
    add_hit(hits.raising);
  }
  unsigned long long value() const { return state_; }

 private:
  void add_hit(const Hit& hit) {
    add(hit.count);
    add(hit.first);
  }
  std::uint64_t state_ = 0xCBF29CE484222325u;
};

class Session {
 public:
  Session(bool quick, bool raw) : quick_(quick), raw_(raw) {}

  bool quick() const { return quick_; }
  int status() const { return launches_ == 0 || failures_ != 0 ? 1 : 0; }
  void sum_up() const {
    std::printf("%llu launches, %llu failures on %s\n", launches_, failures_, describe().c_str());
  }

  /// `run` gets the launch and the mirror. Adds what it met to `hits`.
  template <class Run>
  void call(const Run& run, Hits& hits) {
    Mirror mirror(raw_);
    Hits met;
    unsigned long long claimed = 0;
    auto* raised = static_cast<CudaRaised*>(allocate_mapped(sizeof(CudaRaised)));
    *raised = {};
    CudaLaunch launch;
    launch = launch_here();
    launch.hits = mirror.place(&met, 0, sizeof met);
    launch.alarm = {mirror.place(&claimed, 0, sizeof claimed), raised, kSerial};
    launch.allocate = &Mirror::allocate_scratch;
    launch.allocator = &mirror;
    const CudaStatus status = run(launch, mirror);
    finish(status);
    mirror.bring_back();
    alarm_fits_ = raised->serial == (met.raising.count != 0 ? kSerial : 0);
    release_mapped(raised);
    hits.merge(met);
    ++launches_;
  }

  void report(const std::string& what, const Hash& hash, const std::string& difference) {
    const bool good = difference.empty() && alarm_fits_;
    if (!good) ++failures_;
    std::printf("%s: %016llx %s%s\n", what.c_str(), hash.value(),
                difference.empty() ? "same" : ("DIFFERS: " + difference).c_str(),
                alarm_fits_ ? "" : " ALARM");
    std::fflush(stdout);
  }

 private:
  bool quick_, raw_;
  bool alarm_fits_ = true;
  unsigned long long launches_ = 0, failures_ = 0;
};

Hash hash_of(const Outcome& outcome) {
  Hash hash;
  for (const std::uint64_t bits : outcome.values.bits) hash.add(bits);
  for (const double saved : outcome.saved) hash.add(saved);
  hash.add(outcome.hits);
  hash.add(std::uint64_t{outcome.disturbed});
  return hash;
}

std::string size_of(const Rows& x) {
  return std::to_string(x.rows) + "x" + std::to_string(x.length);
}

/// Rows of all kinds, among them singular ones.
Rows eventful_rows(Element element, std::size_t rows, std::size_t length, double scale,
                   Random& random) {
  Rows x = random_rows(element, rows, length, Fill::uniform, scale, random);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t at = random.below(length);
    switch (random.below(8)) {
      case 0:
        for (std::size_t i = 0; i < length; ++i) x.set(r, i, 0.0);
        break;
      case 1:
        x.set(r, at, kNaN);
        break;
      case 2:
        x.set(r, at, kInfinity);
        break;
      case 3:
        fill_row(x, r, Fill::wide_exponents, 1.0, random);
        break;
      default:
        break;
    }
  }
  return x;
}

struct Shape {
  std::size_t rows, length;
  RowLayout::Kind kind = RowLayout::Kind::contiguous;
  std::size_t shift = 0;
};

/// One for each way of walking: registers of few and many lanes, a block per row, slices, columns.
std::vector<Shape> shapes(bool quick) {
  constexpr auto kColumns = RowLayout::Kind::side_by_side;
  std::vector<Shape> all{
      {7, 3}, {33, 40}, {9, 1000, RowLayout::Kind::contiguous, 1}, {3, 20000}, {65, 17, kColumns}};
  if (quick) return all;
  for (const Shape& more : {Shape{3, 1},
                            {300, 4},
                            {65, 33, RowLayout::Kind::contiguous, 3},
                            {40, 256},
                            {5, 2050},
                            {3, 8193},
                            {2, 70000},
                            {1, 140000},
                            {200, 1000, kColumns},
                            {33, 9000, kColumns}}) {
    all.push_back(more);
  }
  return all;
}

template <class Body>
void for_each_shape(const Session& session, const Body& body) {
  for (const Element element : kElements) {
    std::uint64_t seed = 1;
    for (const Shape& shape : shapes(session.quick())) {
      Arrangement arrangement;
      arrangement.kind = shape.kind;
      arrangement.shift = shape.shift;
      Random random(seed++);
      body(element, shape, arrangement, random);
    }
  }
}

constexpr Policy kPoliciesHere[] = {Policy::zero, Policy::epsilon, Policy::raise};

std::string title(const char* what, Element element, const Rows& x, const Arrangement& arrangement,
                  Policy policy) {
  const bool columns = arrangement.kind == RowLayout::Kind::side_by_side;
  return std::string(what) + " " + name(element) + " " + size_of(x) + (columns ? " columns" : "") +
         (arrangement.shift != 0 ? " misaligned " : " ") + std::string(safeops::name(policy));
}

/// Runs the rest of a trial on the device.
template <class Trial, class Kernel>
Trial on(Session& session, Trial trial, bool staged, const Kernel& kernel) {
  trial.elsewhere = [&session, staged, kernel](const RowArguments& arguments, bool backward,
                                               Hits& hits) {
    session.call(
        [&](const CudaLaunch& launch, Mirror& mirror) {
          return kernel(on_device(arguments, mirror, staged), backward, launch);
        },
        hits);
  };
  return trial;
}

void normalize_rows(Session& session) {
  for_each_shape(session, [&](Element element, const Shape& shape, const Arrangement& arrangement,
                              Random& random) {
    const Rows x = eventful_rows(element, shape.rows, shape.length, 1.0, random);
    const Rows g = random_rows(element, shape.rows, shape.length, Fill::uniform, 1.0, random);
    for (const double p : {2.0, 1.0, kInfinity}) {
      const NormOrder order = order_of(p);
      const auto kernel = [order](const RowArguments& arguments, bool backward,
                                  const CudaLaunch& launch) {
        return backward ? normalize_backward_cuda(arguments, order, launch)
                        : normalize_forward_cuda(arguments, order, launch);
      };
      for (const Policy policy : kPoliciesHere) {
        Trial trial;
        trial.p = p;
        trial.input = trial.second = trial.output = arrangement;
        const Trial device = on(session, trial, false, kernel);
        const auto with = [&](Trial of, bool backward) {
          of.policy = resolved(policy, std::nullopt, element, backward);
          return of;
        };
        const std::string p_name = p == 2 ? "p=2" : p == 1 ? "p=1" : "p=inf";
        const Outcome y = forward(x, with(device, false));
        session.report(title(("normalize " + p_name).c_str(), element, x, arrangement, policy),
                       hash_of(y), difference(y, forward(x, with(trial, false))));
        const Outcome dx = backward(g, x, y.saved, with(device, true));
        session.report(
            title(("normalize backward " + p_name).c_str(), element, x, arrangement, policy),
            hash_of(dx), difference(dx, backward(g, x, y.saved, with(trial, true))));
      }
    }
  });
}

void softmax_rows(Session& session) {
  for_each_shape(session, [&](Element element, const Shape& shape, const Arrangement& arrangement,
                              Random& random) {
    Rows x = random_rows(element, shape.rows, shape.length, Fill::uniform, 8.0, random);
    for (std::size_t r = 0; r < x.rows; r += 4) {
      for (std::size_t i = 0; i < x.length; ++i) x.set(r, i, -kInfinity);
    }
    const Rows g = random_rows(element, shape.rows, shape.length, Fill::uniform, 1.0, random);
    Rows row_gradient(Element::float64, shape.rows, 1);
    for (std::size_t r = 0; r < shape.rows; ++r) row_gradient.set(r, 0, random.symmetric());
    for (const SoftmaxKind kind : kSoftmaxKinds) {
      const auto kernel = [kind](const RowArguments& arguments, bool backward,
                                 const CudaLaunch& launch) {
        return backward ? softmax_backward_cuda(arguments, kind, launch)
                        : softmax_forward_cuda(arguments, kind, launch);
      };
      for (const Policy policy : kPoliciesHere) {
        SoftmaxTrial trial;
        trial.kind = kind;
        trial.policy = policy;
        trial.input = trial.second = trial.output = arrangement;
        const SoftmaxTrial device = on(session, trial, true, kernel);
        const Outcome y = forward(x, device);
        session.report(title(name(kind), element, x, arrangement, policy), hash_of(y), "");
        const bool per_row = kind == SoftmaxKind::logsumexp;
        const Outcome dx =
            backward(per_row ? row_gradient : g, per_row ? x : y.values, y.saved, device);
        session.report(
            title((std::string(name(kind)) + " backward").c_str(), element, x, arrangement, policy),
            hash_of(dx), "");
      }
    }
  });
}

void elements(Session& session) {
  constexpr DivisionKind kKinds[] = {DivisionKind::quotient, DivisionKind::truncated,
                                     DivisionKind::floored,  DivisionKind::rsqrt,
                                     DivisionKind::sqrt,     DivisionKind::log};
  constexpr const char* kNames[] = {"quotient", "truncated", "floored", "rsqrt", "sqrt", "log"};
  for (const Element element : kElements) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{33}, std::size_t{5000}}) {
      Random random(count);
      Rows a(element, count, 1), b(element, count, 1), g(element, count, 1);
      for (std::size_t i = 0; i < count; ++i) {
        a.set(i, 0, random.below(9) == 0 ? 0.0 : any_magnitude(element, random));
        b.set(i, 0, random.below(5) == 0 ? 0.0 : any_magnitude(element, random));
        g.set(i, 0, random.below(9) == 0 ? 0.0 : random.symmetric());
      }
      for (const DivisionKind kind : kKinds) {
        for (const bool backward : {false, true}) {
          for (const Policy policy : kPoliciesHere) {
            DivisionTrial trial;
            trial.kind = kind;
            trial.policy = policy;
            trial.backward = backward;
            DivisionTrial device = trial;
            device.elsewhere = [&](const ElementArguments& arguments, Hits& hits) {
              session.call(
                  [&](const CudaLaunch& launch, Mirror& mirror) {
                    const ElementArguments there = on_device(arguments, mirror);
                    return backward ? division_backward_cuda(there, kind, launch)
                                    : division_forward_cuda(there, kind, launch);
                  },
                  hits);
            };
            const bool two = kind <= DivisionKind::floored;
            Inputs inputs{};
            if (backward) {
              inputs = {&g, &b, two ? &a : nullptr};
            } else {
              inputs = {two ? &a : &b, two ? &b : nullptr, nullptr};
            }
            const DivisionOutcome here = divide(inputs, device);
            DivisionOutcome simd = divide(inputs, trial);
            simd.hits.latent = {};
            Hash hash;
            for (const Rows& output : here.output) {
              for (const std::uint64_t bits : output.bits) hash.add(bits);
            }
            hash.add(here.hits);
            const std::string what =
                std::string(kNames[static_cast<int>(kind)]) + (backward ? " backward" : "");
            session.report(title(what.c_str(), element, b, {}, policy), hash,
                           difference(here, simd));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace safeops::device_check

int main(int argc, char** argv) {
  const auto given = [&](const char* word) {
    return std::any_of(argv + 1, argv + argc,
                       [&](const char* argument) { return std::strcmp(argument, word) == 0; });
  };
  safeops::device_check::Session session(given("--quick"), given("--raw"));
  safeops::device_check::normalize_rows(session);
  safeops::device_check::softmax_rows(session);
  safeops::device_check::elements(session);
  session.sum_up();
  return session.status();
}
