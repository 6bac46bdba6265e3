#include <limits>

#include "core/each_element.h"
#include "core/run_elements.h"
#include "operators/division/complex_math.h"
#include "operators/division/division.h"

// Gradients are PyTorch's: of the conjugate variable, so that a slope enters conjugated. A complex
// element is singular at 0, or where its modulus is below the threshold.

namespace safeops {
namespace {

template <class T>
Complex read(const char* from, double number) {
  if (from == nullptr) return number;
  const T* parts = reinterpret_cast<const T*>(from);
  return {static_cast<double>(parts[0]), static_cast<double>(parts[1])};
}
template <class T>
void write(const Complex& z, char* to) {
  if (to == nullptr) return;
  T* parts = reinterpret_cast<T*>(to);
  parts[0] = static_cast<T>(z.real());
  parts[1] = static_cast<T>(z.imag());
}

constexpr bool is_quotient(DivisionKind kind) { return kind == DivisionKind::quotient; }

Complex value_of(DivisionKind kind, const Complex& z) {
  switch (kind) {
    case DivisionKind::rsqrt:
      return quotient(1, std::sqrt(z));
    case DivisionKind::sqrt:
      return std::sqrt(z);
    default:
      return std::log(z);
  }
}

Complex slope_times(DivisionKind kind, const Complex& g, const Complex& z) {
  switch (kind) {
    case DivisionKind::rsqrt: {
      const Complex y = std::conj(value_of(kind, z));
      const int of_g = scale_of(g), of_y = scale_of(y);
      const Complex near_one = scaled(y, -of_y);
      const Complex square = product(near_one, near_one);
      const Complex slope = product(scaled(g, -of_g), product(square, -0.5 * near_one));
      return scaled(slope, of_g + 3 * of_y);
    }
    case DivisionKind::sqrt:
      return quotient(g, 2.0 * std::conj(std::sqrt(z)));
    default:
      return quotient(g, std::conj(z));
  }
}

// -g conj((a / b) / b)
Complex divisor_slope_times(const Complex& g, const Complex& a, const Complex& b) {
  const int of_g = scale_of(g), of_a = scale_of(a), of_b = scale_of(b);
  const Complex divisor = scaled(b, -of_b);
  const Complex slope = quotient(quotient(scaled(a, -of_a), divisor), divisor);
  return scaled(product(scaled(-g, -of_g), std::conj(slope)), of_g + of_a - 2 * of_b);
}

// Reports what z, a divisor or an argument, meets; returns whether it is singular.
bool report(const Complex& z, DivisionKind kind, bool at_zero, double threshold,
            ElementTally& tally) {
  if (is_zero(z)) {
    if (at_zero) {
      tally.report(is_quotient(kind) ? Condition::zero_denominator : Condition::zero_argument);
    } else {
      tally.report_latent();
    }
    return at_zero;
  }
  if (!(std::hypot(z.real(), z.imag()) < threshold)) return false;
  tally.report(Condition::below_eps);
  return true;
}

Complex filled(const Resolution& policy) {
  return policy.fill != policy.fill ? Complex(policy.fill, policy.fill) : Complex(policy.fill);
}

// f(eps z / abs(z)), f(eps) at 0. A logarithm of that would make an error of what the modulus was
// rounded by.
Complex floored_value(DivisionKind kind, const Complex& z, double eps) {
  if (kind == DivisionKind::log) return {std::log(eps), is_zero(z) ? 0 : std::arg(z)};
  return value_of(kind, on_circle(z, eps));
}

Complex singular_value(DivisionKind kind, const Resolution& policy, const Complex& a,
                       const Complex& b) {
  if (policy.floor != 0) {
    return is_quotient(kind) ? quotient(a, on_circle(b, policy.floor))
                             : floored_value(kind, b, policy.floor);
  }
  if (policy.fills) return filled(policy);
  return is_quotient(kind) ? quotient(a, b) : value_of(kind, b);
}

template <class T, DivisionKind kKind>
void forward(const ElementArguments& arguments, std::size_t begin, std::size_t end, Hits& hits) {
  const Resolution& policy = arguments.policy;
  const double threshold = threshold_as<T>(policy.threshold);
  const bool at_zero = kKind != DivisionKind::sqrt || policy.floor != 0;
  each_element(arguments, begin, end, hits, [&](const ElementCursor& at, ElementTally& tally) {
    const Complex a = read<T>(at.input(0), arguments.number[0]);
    const Complex b = is_quotient(kKind) ? read<T>(at.input(1), arguments.number[1]) : a;
    const bool singular =
        !(is_quotient(kKind) && has_nan(a)) && report(b, kKind, at_zero, threshold, tally);
    if (singular) {
      write<T>(singular_value(kKind, policy, a, b), at.output(0));
    } else {
      write<T>(is_quotient(kKind) ? quotient(a, b) : value_of(kKind, b), at.output(0));
    }
  });
}

template <class T>
void quotient_backward(const ElementArguments& arguments, std::size_t begin, std::size_t end,
                       Hits& hits) {
  const Resolution& policy = arguments.policy;
  const double threshold = threshold_as<T>(policy.threshold);
  each_element(arguments, begin, end, hits, [&](const ElementCursor& at, ElementTally& tally) {
    const Complex g = read<T>(at.input(0), 0);
    const Complex b = read<T>(at.input(1), arguments.number[1]);
    const Complex a = read<T>(at.input(2), arguments.number[2]);
    const bool singular =
        !has_nan(a) && report(b, DivisionKind::quotient, /*at_zero=*/true, threshold, tally);
    if (singular && !is_zero(g)) tally.report_raising();
    if (singular && policy.floor != 0) {
      write<T>(quotient(g, std::conj(on_circle(b, policy.floor))), at.output(0));
      write<T>(0, at.output(1));
    } else if (singular && policy.fills) {
      write<T>(filled(policy), at.output(0));
      write<T>(filled(policy), at.output(1));
    } else {
      write<T>(quotient(g, std::conj(b)), at.output(0));
      write<T>(divisor_slope_times(g, a, b), at.output(1));
    }
  });
}

template <class T, DivisionKind kKind>
void unary_backward(const ElementArguments& arguments, std::size_t begin, std::size_t end,
                    Hits& hits) {
  const Resolution& policy = arguments.policy;
  const double threshold = threshold_as<T>(policy.threshold);
  each_element(arguments, begin, end, hits, [&](const ElementCursor& at, ElementTally& tally) {
    const Complex g = read<T>(at.input(0), 0), z = read<T>(at.input(1), arguments.number[1]);
    const bool singular = report(z, kKind, /*at_zero=*/true, threshold, tally);
    if (singular && !is_zero(g)) tally.report_raising();
    const bool fills = singular && policy.fills;
    write<T>(fills ? filled(policy) : slope_times(kKind, g, z), at.output(0));
  });
}

template <class T>
ElementKernel forward_kernel(DivisionKind kind) {
  switch (kind) {
    case DivisionKind::rsqrt:
      return forward<T, DivisionKind::rsqrt>;
    case DivisionKind::sqrt:
      return forward<T, DivisionKind::sqrt>;
    case DivisionKind::log:
      return forward<T, DivisionKind::log>;
    default:
      return forward<T, DivisionKind::quotient>;
  }
}

template <class T>
ElementKernel backward_kernel(DivisionKind kind) {
  switch (kind) {
    case DivisionKind::rsqrt:
      return unary_backward<T, DivisionKind::rsqrt>;
    case DivisionKind::sqrt:
      return unary_backward<T, DivisionKind::sqrt>;
    case DivisionKind::log:
      return unary_backward<T, DivisionKind::log>;
    default:
      return quotient_backward<T>;
  }
}

}  // namespace

void division_forward_complex(const ElementArguments& arguments, DivisionKind kind,
                              Executor& executor, Hits& hits) {
  const bool narrow = arguments.element == Element::float32;
  run_forward(arguments, narrow ? forward_kernel<float>(kind) : forward_kernel<double>(kind),
              executor, hits);
}

void division_backward_complex(const ElementArguments& arguments, DivisionKind kind,
                               Executor& executor, Hits& hits) {
  const bool narrow = arguments.element == Element::float32;
  run_elements(arguments, narrow ? backward_kernel<float>(kind) : backward_kernel<double>(kind),
               executor, hits);
}

}  // namespace safeops
