# Finds the LibTorch inside the torch package of a Python interpreter.
#
# Neither imports torch (seconds) nor uses torch's own CMake package (it demands a CUDA toolkit when
# the wheel was built with CUDA). Inputs: Python_EXECUTABLE, or LibTorch_ROOT = a folder with
# include/, lib/ and version.py. Results:
#
#   LibTorch_FOUND, LibTorch_VERSION ("2.15.0"), LibTorch_DIR_FOUND
#   LibTorch::c10, LibTorch::torch_cpu, and where torch has CUDA LibTorch::c10_cuda and
#   LibTorch::torch_cuda (their headers want those of a CUDA runtime beside them)

if(LibTorch_ROOT)
  set(LibTorch_DIR_FOUND "${LibTorch_ROOT}")
else()
  find_package(Python 3.10 QUIET COMPONENTS Interpreter)
  if(Python_EXECUTABLE)
    execute_process(
      COMMAND "${Python_EXECUTABLE}" -c
"import importlib.util, os
spec = importlib.util.find_spec('torch')
print(os.path.dirname(spec.origin) if spec and spec.origin else '')"
      OUTPUT_VARIABLE LibTorch_DIR_FOUND OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
endif()

set(LibTorch_VERSION "")
if(EXISTS "${LibTorch_DIR_FOUND}/version.py")
  file(STRINGS "${LibTorch_DIR_FOUND}/version.py" _libtorch_line REGEX "^__version__ = ")
  # Without the local part ("+cu132") and pre-release parts: what the headers call the version.
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" LibTorch_VERSION "${_libtorch_line}")
  # Another torch in the same place must not be mistaken for the one that was configured.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${LibTorch_DIR_FOUND}/version.py")
endif()

# Plain checks instead of find_library, whose cached answer would outlive a change of interpreter.
set(_libtorch_complete TRUE)
foreach(_libtorch_name c10 torch_cpu c10_cuda torch_cuda)
  set(_libtorch_file
    "${LibTorch_DIR_FOUND}/lib/${CMAKE_SHARED_LIBRARY_PREFIX}${_libtorch_name}${CMAKE_SHARED_LIBRARY_SUFFIX}")
  if(NOT EXISTS "${_libtorch_file}")
    if(NOT _libtorch_name MATCHES "_cuda$")
      set(_libtorch_complete FALSE)
    endif()
  elseif(NOT TARGET LibTorch::${_libtorch_name})
    add_library(LibTorch::${_libtorch_name} SHARED IMPORTED)
    set_target_properties(LibTorch::${_libtorch_name} PROPERTIES
      IMPORTED_LOCATION "${_libtorch_file}"
      INTERFACE_INCLUDE_DIRECTORIES
        "${LibTorch_DIR_FOUND}/include;${LibTorch_DIR_FOUND}/include/torch/csrc/api/include"
      INTERFACE_COMPILE_FEATURES cxx_std_20)
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_DIR_FOUND LibTorch_VERSION _libtorch_complete
  VERSION_VAR LibTorch_VERSION
  HANDLE_VERSION_RANGE
  REASON_FAILURE_MESSAGE
    "searched the torch package of '${Python_EXECUTABLE}': name another interpreter with -DPython_EXECUTABLE=..., and let pip build with --no-build-isolation")

if(LibTorch_FOUND)
  set_target_properties(LibTorch::torch_cpu PROPERTIES INTERFACE_LINK_LIBRARIES LibTorch::c10)
  if(TARGET LibTorch::torch_cuda AND TARGET LibTorch::c10_cuda)
    set_target_properties(LibTorch::c10_cuda PROPERTIES INTERFACE_LINK_LIBRARIES LibTorch::c10)
    set_target_properties(LibTorch::torch_cuda PROPERTIES
      INTERFACE_LINK_LIBRARIES "LibTorch::c10_cuda;LibTorch::torch_cpu")
  endif()
  # torch_cpu's own dependencies (OpenMP, CUDA runtime) are found by its RPATH at run time, not here.
  set_target_properties(LibTorch::c10 PROPERTIES
    INTERFACE_LINK_OPTIONS "LINKER:--allow-shlib-undefined")
endif()

unset(_libtorch_complete)
unset(_libtorch_file)
unset(_libtorch_line)
unset(_libtorch_name)
