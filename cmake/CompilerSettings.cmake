# What every translation unit is compiled with. Values must be bit for bit those that the source
# says: no contraction that the source does not spell as a fused multiply-add, no fast-math.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Assertions stay on in the developer's build type.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

find_program(SAFEOPS_CCACHE ccache)
mark_as_advanced(SAFEOPS_CCACHE)
if(SAFEOPS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${SAFEOPS_CCACHE}")
endif()

add_library(safeops_settings INTERFACE)
target_compile_options(safeops_settings INTERFACE
  -ffp-contract=off -fno-math-errno -Wall -Wextra -Wpedantic -Wshadow)
target_include_directories(safeops_settings INTERFACE
  "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
target_compile_definitions(safeops_settings INTERFACE SAFEOPS_VERSION="${PROJECT_VERSION}")

if(SAFEOPS_SANITIZE)
  add_compile_options(
    -fsanitize=${SAFEOPS_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${SAFEOPS_SANITIZE})
endif()
