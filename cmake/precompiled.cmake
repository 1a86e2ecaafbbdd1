# With FAIRWAY_PRECOMPILE the headers that most files include (the standard library's, fmt's, GoogleTest's) are parsed once for all
# targets of this build, whatever each of them includes. Clang alone: what GCC keeps of headers is four times as large and
# saves it little.
function(fairway_precompile_all)
  if(NOT FAIRWAY_PRECOMPILE OR NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    return()
  endif()
  set(headers <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstdio> <cstdlib> <cstring> <deque> <filesystem> <fstream>
    <functional> <map> <memory> <mutex> <optional> <random> <set> <span> <sstream> <string> <string_view> <thread> <unordered_map>
    <utility> <variant> <vector> <fmt/format.h>)
  set(links fmt::fmt)
  if(FAIRWAY_BUILD_TESTS)
    list(APPEND headers <gtest/gtest.h>)
    list(APPEND links GTest::gtest)
  endif()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/precompiled.cc CONTENT "")
  # One for each of the two levels of optimisation: clang refuses another's.
  foreach(kind IN ITEMS library rest)
    add_library(fairway_precompiled_${kind} OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/precompiled.cc)
    target_link_libraries(fairway_precompiled_${kind} PRIVATE ${links})
    target_precompile_headers(fairway_precompiled_${kind} PRIVATE ${headers})
  endforeach()
  target_compile_options(fairway_precompiled_rest PRIVATE ${FAIRWAY_OUTER_OPTIONS})
  fairway_precompile_folder(${PROJECT_SOURCE_DIR}/src library)
  foreach(folder IN ITEMS plugins tools python bench examples tests)
    fairway_precompile_folder(${PROJECT_SOURCE_DIR}/${folder} rest)
  endforeach()
endfunction()

function(fairway_precompile_folder folder kind)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    # headers_*: whether a header compiles alone. example_c_*: C.
    if(type MATCHES "EXECUTABLE|LIBRARY" AND NOT type STREQUAL "INTERFACE_LIBRARY" AND NOT target MATCHES "^(headers|example_c)_")
      target_precompile_headers(${target} REUSE_FROM fairway_precompiled_${kind})
    endif()
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    fairway_precompile_folder(${below} ${kind})
  endforeach()
endfunction()
