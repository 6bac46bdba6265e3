#include "cases/softmax_xsimd.h"
#include "softmax_peer.h"

namespace safeops {

SoftmaxPeer softmax_peer_avx512() {
  return softmax_peer<cases::XsimdSoftmax<xsimd::avx512bw>>("xsimd_AVX512", [] {
    return __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  });
}

}  // namespace safeops
