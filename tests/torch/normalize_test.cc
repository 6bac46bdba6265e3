#include "safeops/safeops.h"

#include <gtest/gtest.h>
