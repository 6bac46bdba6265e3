#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>

namespace safeops {

// Complex arithmetic whose intermediates neither overflow nor underflow. float32 parts are computed
// in fp64 throughout, where none of the scaling below has anything to do.

using Complex = std::complex<double>;

inline bool has_nan(const Complex& z) { return std::isnan(z.real()) || std::isnan(z.imag()); }
inline bool is_zero(const Complex& z) { return z.real() == 0 && z.imag() == 0; }
inline bool is_finite(const Complex& z) {
  return std::isfinite(z.real()) && std::isfinite(z.imag());
}

// p q + r s, below 1.5 ulp (W. Kahan; proof in Jeannerod, Louvet and Muller, "Further analysis of
// Kahan's algorithm for the accurate computation of 2x2 determinants", 2013).
inline double sum_of_products(double p, double q, double r, double s) {
  const double product = r * s;
  if (!std::isfinite(product)) return p * q + product;
  const double lost = std::fma(r, s, -product);
  return std::fma(p, q, product) + lost;
}

// The exponent that brings the larger part of z near 1.
inline int scale_of(const Complex& z) {
  const double size = std::max(std::fabs(z.real()), std::fabs(z.imag()));
  return size > 0 && std::isfinite(size) ? std::ilogb(size) : 0;
}
inline Complex scaled(const Complex& z, int exponent) {
  return {std::scalbn(z.real(), exponent), std::scalbn(z.imag(), exponent)};
}

// z w* / |w|^2, where z and w are scaled first. Over 0 the parts are divided by it, as PyTorch's
// are; a finite number over an infinite one is 0.
inline Complex quotient(Complex z, Complex w) {
  if (is_zero(w)) return {z.real() / std::fabs(w.real()), z.imag() / std::fabs(w.imag())};
  if (has_nan(w)) return {w.real() + w.imag(), w.real() + w.imag()};
  if (!is_finite(w)) {
    const double zero = is_finite(z) ? 0.0 : std::numeric_limits<double>::quiet_NaN();
    return {zero, zero};
  }
  const int of_z = scale_of(z), of_w = scale_of(w);
  z = scaled(z, -of_z);
  w = scaled(w, -of_w);
  const double square = sum_of_products(w.real(), w.real(), w.imag(), w.imag());
  const Complex product(sum_of_products(z.real(), w.real(), z.imag(), w.imag()),
                        sum_of_products(z.imag(), w.real(), -z.real(), w.imag()));
  return scaled({product.real() / square, product.imag() / square}, of_z - of_w);
}

// As std::complex multiplies without Annex G: infinity times 0 is NaN, part by part.
inline Complex product(const Complex& z, const Complex& w) {
  return {sum_of_products(z.real(), w.real(), -z.imag(), w.imag()),
          sum_of_products(z.real(), w.imag(), z.imag(), w.real())};
}

// eps in the direction of z; eps itself at 0.
inline Complex on_circle(const Complex& z, double eps) {
  if (is_zero(z)) return eps;
  const Complex unit = scaled(z, -scale_of(z));
  const double size = std::hypot(unit.real(), unit.imag());
  return {eps * (unit.real() / size), eps * (unit.imag() / size)};
}

}  // namespace safeops
