# Decides whether the CUDA kernels are built (SAFEOPS_BUILD_CUDA), and enables their language.
#
# They need nvcc 13 or newer and a torch with CUDA. Included where torch has been found.

if(SKBUILD)
  # A wheel for everybody: it neither needs nor mentions a toolkit.
  set(default_cuda OFF)
else()
  set(default_cuda AUTO)
endif()
set(SAFEOPS_CUDA ${default_cuda} CACHE STRING
    "Build the CUDA kernels: ON, OFF or, where everything that they need is there, AUTO")
set_property(CACHE SAFEOPS_CUDA PROPERTY STRINGS AUTO ON OFF)
unset(default_cuda)

set(SAFEOPS_BUILD_CUDA OFF)
if(NOT SAFEOPS_CUDA)
  set(SAFEOPS_WHY_NO_CUDA "SAFEOPS_CUDA is OFF")
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER AND DEFINED ENV{CUDACXX})
  set(CMAKE_CUDA_COMPILER "$ENV{CUDACXX}")
endif()
find_program(SAFEOPS_NVCC nvcc
  HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(SAFEOPS_NVCC)
if(NOT CMAKE_CUDA_COMPILER AND SAFEOPS_NVCC)
  set(CMAKE_CUDA_COMPILER "${SAFEOPS_NVCC}")
endif()
set(nvcc_version 0)
if(CMAKE_CUDA_COMPILER)
  execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --version OUTPUT_VARIABLE nvcc_text)
  if(nvcc_text MATCHES "release ([0-9]+\\.[0-9]+)")
    set(nvcc_version ${CMAKE_MATCH_1})
  endif()
  unset(nvcc_text)
endif()

set(missing "")
if(NOT TARGET LibTorch::torch_cuda)
  set(missing "the torch in '${LibTorch_DIR_FOUND}' has no CUDA: install one that has")
elseif(nvcc_version VERSION_LESS 13)
  set(missing "no nvcc 13 or newer was found: put one on PATH or set CMAKE_CUDA_COMPILER")
elseif(SAFEOPS_SANITIZE)
  set(missing "SAFEOPS_SANITIZE is set, and sanitizers know no device code: leave it out")
endif()
unset(nvcc_version)

if(missing STREQUAL "")
  set(SAFEOPS_BUILD_CUDA ON)
elseif(SAFEOPS_CUDA STREQUAL "AUTO")
  message(STATUS "No CUDA kernels: ${missing}")
else()
  message(FATAL_ERROR "SAFEOPS_CUDA=ON, but ${missing}, or set SAFEOPS_CUDA=OFF")
endif()
set(SAFEOPS_WHY_NO_CUDA "${missing}")
unset(missing)
if(NOT SAFEOPS_BUILD_CUDA)
  return()
endif()

# torch brings a runtime of its own: a second one, linked in, would have its own state.
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
# What users may have, and code that later devices translate for themselves. One architecture takes
# a sixth of the time: -DCMAKE_CUDA_ARCHITECTURES=90-real, or native.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90-real 100-real 120-real 120-virtual
      CACHE STRING "Architectures of the CUDA kernels")
endif()
if(SAFEOPS_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${SAFEOPS_CCACHE}")
endif()
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O3 -g")
enable_language(CUDA)

# CMake 3.25 knows no C++20 of nvcc.
foreach(dialect STANDARD EXTENSION)
  if(NOT CMAKE_CUDA20_${dialect}_COMPILE_OPTION)
    set(CMAKE_CUDA20_${dialect}_COMPILE_OPTION -std=c++20)
  endif()
endforeach()
