# The target check_cuda: PTX and registers of every kernel, as the product compiles it. A custom
# target and no test, for a part of CI's machines has no CUDA compiler: there it says so.

# Of the kernels that make up the object library `kernels`, with its options.
function(safeops_check_cuda kernels)
  get_target_property(sources ${kernels} SOURCES)
  get_target_property(options ${kernels} COMPILE_OPTIONS)
  get_target_property(includes ${kernels} INCLUDE_DIRECTORIES)
  # What says how machine code is stored; PTX is text.
  list(FILTER options EXCLUDE REGEX "^-(Xfatbin|compress|-threads)")
  list(TRANSFORM includes PREPEND "-I")
  cmake_path(GET CMAKE_CUDA_COMPILER PARENT_PATH toolkit_bin)
  set(folder "${PROJECT_BINARY_DIR}/check_cuda")
  file(MAKE_DIRECTORY "${folder}")
  set(architectures ${CMAKE_CUDA_ARCHITECTURES})
  if(architectures STREQUAL "native")
    set(architectures ${CMAKE_CUDA_ARCHITECTURES_NATIVE})
  endif()
  list(TRANSFORM architectures REPLACE "-.*" "")
  list(REMOVE_DUPLICATES architectures)
  # PTX differs between the oldest architecture and those that can do more.
  set(read_architectures 75 ${architectures})
  list(REMOVE_DUPLICATES read_architectures)

  set(all_ptx "")
  set(all_logs "")
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM name)
    foreach(architecture IN LISTS read_architectures)
      set(ptx "${folder}/${name}.compute_${architecture}.ptx")
      add_custom_command(OUTPUT "${ptx}"
        COMMAND ${CMAKE_CUDA_COMPILER} -std=c++20 ${options} ${includes} -ptx
          -arch=compute_${architecture} -MD -MT "${ptx}" -MF "${ptx}.d" -o "${ptx}" "${source}"
        DEPENDS "${source}" DEPFILE "${ptx}.d"
        COMMENT "PTX of ${name} for compute_${architecture}" VERBATIM)
      list(APPEND all_ptx "${ptx}")
    endforeach()
    foreach(architecture IN LISTS architectures)
      set(ptx "${folder}/${name}.compute_${architecture}.ptx")
      set(log "${folder}/${name}.sm_${architecture}.log")
      add_custom_command(OUTPUT "${log}"
        COMMAND sh -c "\"$@\" >\"$0\" 2>&1 || { cat \"$0\"; exit 1; }" "${log}"
          "${toolkit_bin}/ptxas" -v -arch=sm_${architecture} -o /dev/null "${ptx}"
        DEPENDS "${ptx}"
        COMMENT "Registers of ${name} for sm_${architecture}" VERBATIM)
      list(APPEND all_logs "${log}")
    endforeach()
  endforeach()

  if(Python_EXECUTABLE)
    set(python "${Python_EXECUTABLE}")
  else()
    set(python python3)
  endif()
  foreach(target check_cuda update_cuda_registers)
    add_custom_target(${target}
      COMMAND "${python}" "${PROJECT_SOURCE_DIR}/tools/ptx_lint.py" ${all_ptx}
      COMMAND "${python}" "${PROJECT_SOURCE_DIR}/tools/cuda_registers.py"
        "$<$<STREQUAL:${target},update_cuda_registers>:--update>" ${all_logs}
      DEPENDS ${all_ptx} ${all_logs} USES_TERMINAL COMMAND_EXPAND_LISTS VERBATIM)
  endforeach()
endfunction()

# Where there is nothing to check with.
function(safeops_skip_check_cuda reason)
  foreach(target check_cuda update_cuda_registers)
    add_custom_target(${target}
      COMMAND ${CMAKE_COMMAND} -E echo
        "${target}: SKIPPED: ${reason}; kernels for CUDA were neither compiled nor checked"
      USES_TERMINAL VERBATIM)
  endforeach()
endfunction()
