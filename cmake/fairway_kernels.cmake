# Kernels travel as PTX in the library; the driver makes machine code of it for whatever GPU there is.
find_program(FAIRWAY_NVCC nvcc HINTS /usr/local/cuda/bin)
option(FAIRWAY_WITH_NVCC "Build the kernels when nvcc is found" ON)
if(FAIRWAY_WITH_NVCC AND FAIRWAY_NVCC)
  set(FAIRWAY_KERNELS ON)
  message(STATUS "fairway: kernels on (${FAIRWAY_NVCC})")
  execute_process(COMMAND ${FAIRWAY_NVCC} --help OUTPUT_VARIABLE said ERROR_QUIET)
  string(FIND "${said}" "--Ofast-compile" at)
  if(at GREATER -1)
    set(FAIRWAY_NVCC_HAS_QUICK ON)
  endif()
else()
  set(FAIRWAY_KERNELS OFF)
  message(STATUS "fairway: kernels off: pages of GPU memory go one by one, streams put nothing")
endif()

# The kernels of <stem>.cu take the driver seconds to compile: for Hopper they travel as machine code, too. As fairway_kernels,
# but `function` gives what cuModuleLoadData takes.
function(fairway_large_kernels out stem namespace function)
  set(image ${CMAKE_CURRENT_BINARY_DIR}/${stem}.fatbin)
  set(text ${CMAKE_CURRENT_BINARY_DIR}/${stem}.cc)
  if(FAIRWAY_SANITIZE)
    # Two minutes of nvcc, for what no sanitizer looks into. The driver that stands in for CUDA's, with which the tests run,
    # has kernels of its own.
    file(CONFIGURE OUTPUT ${image} CONTENT "A build with sanitizers has no kernels for collectives.\n")
  else()
    set(images -gencode arch=compute_80,code=compute_80)
    if(NOT FAIRWAY_QUICK_KERNELS)
      list(APPEND images -gencode arch=compute_90,code=sm_90)
    elseif(FAIRWAY_NVCC_HAS_QUICK)
      list(APPEND images -Ofc=max)  # a twentieth of the time
    endif()
    add_custom_command(OUTPUT ${image}
      COMMAND ${FAIRWAY_NVCC} -fatbin -O3 -std=c++17 ${images}
              -I ${PROJECT_SOURCE_DIR}/include -I ${PROJECT_SOURCE_DIR}/src -o ${image} ${CMAKE_CURRENT_SOURCE_DIR}/${stem}.cu
      DEPENDS ${stem}.cu ${ARGN})
  endif()
  file(WRITE ${text} "asm(\".pushsection .rodata\\n.balign 64\\nfairway_${function}: .incbin \\\"${image}\\\"\\n.popsection\");
extern \"C\" const char fairway_${function}[] __attribute__((visibility(\"hidden\")));
namespace ${namespace} {
const char* ${function}() {
  return fairway_${function};
}
}
")
  set_property(SOURCE ${text} APPEND PROPERTY OBJECT_DEPENDS ${image})
  set_property(SOURCE ${text} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
  set(${out} ${${out}} ${text} PARENT_SCOPE)
endfunction()

# fairway_kernels(<out> <stem> <namespace> <function> [DEPENDS...]): adds to the list <out> a source whose `function` gives the PTX
# of <stem>.cu.
function(fairway_kernels out stem namespace function)
  set(ptx ${CMAKE_CURRENT_BINARY_DIR}/${stem}.ptx)
  set(text ${CMAKE_CURRENT_BINARY_DIR}/${stem}.cc)
  add_custom_command(OUTPUT ${ptx}
    COMMAND ${FAIRWAY_NVCC} -ptx -O3 -std=c++17 -arch=compute_80 -I ${PROJECT_SOURCE_DIR}/include -I ${PROJECT_SOURCE_DIR}/src
            -o ${ptx} ${CMAKE_CURRENT_SOURCE_DIR}/${stem}.cu
    DEPENDS ${stem}.cu ${ARGN})
  add_custom_command(OUTPUT ${text}
    COMMAND ${CMAKE_COMMAND} -DFROM=${ptx} -DNAMESPACE=${namespace} -DFUNCTION=${function} -DTO=${text}
            -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${ptx} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake)
  set(${out} ${${out}} ${text} PARENT_SCOPE)
endfunction()
