#include "cases/softmax_xsimd.h"
#include "softmax_peer.h"

namespace safeops {

SoftmaxPeer softmax_peer_avx2() {
  return softmax_peer<cases::XsimdSoftmax<xsimd::fma3<xsimd::avx2>>>("xsimd_AVX2", [] {
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  });
}

}  // namespace safeops
