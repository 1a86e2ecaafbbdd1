# fairway_module(<name> SOURCES ... [LINKS ...] [DEFINES ...] [TOGETHER] [APART]): one object target, fairway_<name>, per folder of
# src/, linked privately to the layers below it. src/CMakeLists.txt adds the folders bottom up and a link to a target that does not
# exist yet is refused here, so no module can link upwards. Everything ends in fairway_internal, which the tool and the tests
# link, and in libfairway.so, unless it is APART: only the tool and the tests use it.
function(fairway_module name)
  cmake_parse_arguments(M "TOGETHER;APART" "" "SOURCES;LINKS;DEFINES" ${ARGN})
  if(M_UNPARSED_ARGUMENTS OR NOT M_SOURCES)
    message(FATAL_ERROR "fairway_module(${name}): needs SOURCES; not understood: ${M_UNPARSED_ARGUMENTS}")
  endif()
  foreach(link IN LISTS M_LINKS)
    if(link MATCHES "^fairway_" AND NOT TARGET ${link})
      message(FATAL_ERROR "fairway_module(${name}): ${link} is not below ${name} (see src/CMakeLists.txt)")
    endif()
  endforeach()
  add_library(fairway_${name} OBJECT ${M_SOURCES})
  target_include_directories(fairway_${name}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(fairway_${name} PRIVATE ${M_LINKS})
  target_compile_definitions(fairway_${name} PRIVATE ${M_DEFINES})
  # One translation unit where it is built to be used: calls between its files are inlined. Elsewhere a change of one
  # file should not compile the others.
  if(M_TOGETHER AND CMAKE_BUILD_TYPE STREQUAL "Release")
    set_target_properties(fairway_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  endif()
  set_property(GLOBAL APPEND PROPERTY FAIRWAY_MODULES fairway_${name})
  if(NOT M_APART)
    set_property(GLOBAL APPEND PROPERTY FAIRWAY_SHIPPED fairway_${name})
  endif()
endfunction()
