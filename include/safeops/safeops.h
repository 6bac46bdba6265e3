#pragma once

#include "safeops/diagnostics.h"
#include "safeops/operators.h"
#include "safeops/policy.h"
