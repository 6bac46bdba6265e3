// The vocabulary on elements, for whichever compiler reads it.
#if defined(SAFEOPS_CUDA)
#include "core/lanes_cuda.h"
#else
#include "core/lanes_highway-inl.h"
#endif
