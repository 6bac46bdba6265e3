#pragma once

#include "safeops/diagnostics.h"
#include "safeops/json_lines.h"
#include "safeops/operators.h"
#include "safeops/policy.h"
#include "safeops/reporter.h"
