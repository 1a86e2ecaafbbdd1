# fairway_module(<name> SOURCES ... [LINKS ...]): one object target per folder of src/, linked privately to the layers
# below it. Everything ends in libfairway.so; tests and the tool link the modules' objects through fairway_internal.
function(fairway_module name)
  cmake_parse_arguments(M "" "" "SOURCES;LINKS" ${ARGN})
  add_library(fairway_${name} OBJECT ${M_SOURCES})
  target_include_directories(fairway_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(fairway_${name} PRIVATE ${M_LINKS})
  set_property(GLOBAL APPEND PROPERTY FAIRWAY_MODULES fairway_${name})
endfunction()
