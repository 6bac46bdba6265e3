# Installs headers, libraries and the CMake package `safeops` with the components core, torch and,
# where its kernels were built, torch_cuda.
# A wheel holds the same tree inside the Python package, without the static core.

include(CMakePackageConfigHelpers)

if(SKBUILD)
  set(CMAKE_INSTALL_LIBDIR lib)
  set(CMAKE_INSTALL_INCLUDEDIR include)
endif()
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/safeops")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/safeops"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h")

set(installed_components "")
if(NOT SKBUILD)
  list(APPEND installed_components core)
endif()
if(SAFEOPS_BUILD_TORCH)
  list(APPEND installed_components torch)
  # Beside itself, and, in a wheel, the torch of the same site-packages.
  set_target_properties(safeops_torch PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/../../torch/lib")
  if(SAFEOPS_BUILD_CUDA)
    list(APPEND installed_components torch_cuda)
    set_target_properties(safeops_torch_cuda PROPERTIES
      INSTALL_RPATH "$ORIGIN;$ORIGIN/../../torch/lib;$ORIGIN/../../nvidia/cu13/lib")
  endif()
  # torch keeps its C++ interface between patch releases only.
  string(REGEX MATCH "^([0-9]+)\\.([0-9]+)" libtorch_minor "${LibTorch_VERSION}")
  math(EXPR next_minor "${CMAKE_MATCH_2} + 1")
  set(libtorch_range "${libtorch_minor}...<${CMAKE_MATCH_1}.${next_minor}")
endif()

foreach(component IN LISTS installed_components)
  install(TARGETS safeops_${component} EXPORT safeops_${component}
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(EXPORT safeops_${component} NAMESPACE safeops:: DESTINATION "${package_dir}"
    FILE safeops-${component}.cmake)
endforeach()

# Debian has Highway only as a shared library; a wheel must not depend on it being installed.
get_target_property(hwy_type hwy::hwy TYPE)
if(SKBUILD AND hwy_type STREQUAL "SHARED_LIBRARY")
  install(FILES "$<TARGET_FILE:hwy::hwy>" DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    RENAME "$<TARGET_SONAME_FILE_NAME:hwy::hwy>")
endif()

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/safeopsConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/safeopsConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/safeopsConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/safeopsConfig.cmake"
  "${PROJECT_BINARY_DIR}/safeopsConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake"
  DESTINATION "${package_dir}")
