# Every switch a builder may turn, with what it costs to turn it.
option(FAIRWAY_BUILD_TESTS "Build the tests (needs GoogleTest)" ON)
option(FAIRWAY_FUZZ "Build the fuzz targets (needs clang); the whole library is then instrumented and slower" OFF)
option(FAIRWAY_WHEEL "Link into libfairway.so what a Python wheel may not need of its system; hwloc and pugixml are left out" OFF)
set(FAIRWAY_PYTHON_FOLDER "" CACHE STRING "Where below the prefix cmake --install puts the Python module; empty: nowhere")
option(FAIRWAY_PACKAGES "Let cpack make Debian packages (make packages)" OFF)
option(FAIRWAY_PRECOMPILE "Parse the headers that most files include once; hides a missing #include (clang)" OFF)
set(FAIRWAY_OUTER_OPTIONS "" CACHE STRING "Options of the compiler for what no transfer passes through: models and pictures of machines, the doctor, the tool, the tests")
option(FAIRWAY_QUICK_KERNELS "Large kernels as PTX alone, hardly optimised: less time in nvcc, seconds more when a GPU first gets them" OFF)
set(FAIRWAY_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread; several times slower")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror=return-type)
# GCC 12 at -O2 takes the value of a std::optional, read only where there is one, for uninitialised.
add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
if(FAIRWAY_SANITIZE)
  add_compile_options(-fsanitize=${FAIRWAY_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${FAIRWAY_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND FAIRWAY_SANITIZE MATCHES "undefined")
    # Clang's vptr check does not know the types inside GCC's libstdc++ (std::generic_category()).
    add_compile_options(-fno-sanitize=vptr)
  endif()
endif()
if(FAIRWAY_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_definitions(__SANITIZE_THREAD__=1)  # GCC's way of saying it
endif()
if(FAIRWAY_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC warns that the sanitizer does not model fences. Those here order atomics only, so it may miss something but
  # reports nothing false.
  add_compile_options(-Wno-tsan)
endif()
if(FAIRWAY_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "FAIRWAY_FUZZ needs clang: configure with -DCMAKE_CXX_COMPILER=clang++ or the preset fuzz")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# lld links the tests in a fraction of the default linker's time.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=lld FAIRWAY_HAVE_LLD)
if(FAIRWAY_HAVE_LLD)
  add_link_options(-fuse-ld=lld)
endif()

# So that one precompiled header is for libraries and programs alike.
if(FAIRWAY_PRECOMPILE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(CMAKE_CXX_COMPILE_OPTIONS_PIE ${CMAKE_CXX_COMPILE_OPTIONS_PIC})
endif()

# Several build folders of one tree share what ccache keeps.
find_program(FAIRWAY_CCACHE ccache)
mark_as_advanced(FAIRWAY_CCACHE)
if(FAIRWAY_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
    CCACHE_SLOPPINESS=pch_defines,time_macros ${FAIRWAY_CCACHE})
endif()
