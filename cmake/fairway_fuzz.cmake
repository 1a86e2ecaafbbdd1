# fairway_fuzz(<name> SOURCES ... CORPUS <folder>): one program around LLVMFuzzerTestOneInput. With FAIRWAY_FUZZ it is a
# libFuzzer target and its test searches for a few seconds from the corpus; otherwise its test, labelled unit, replays the
# corpus under whatever compiler and sanitizer this build has.
set(FAIRWAY_FUZZ_SECONDS 3 CACHE STRING "How long the test of each fuzz target searches")

function(fairway_fuzz name)
  cmake_parse_arguments(F "" "CORPUS" "SOURCES;LINKS" ${ARGN})
  if(NOT F_SOURCES OR NOT F_CORPUS OR F_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "fairway_fuzz(${name}): needs SOURCES and CORPUS; not understood: ${F_UNPARSED_ARGUMENTS}")
  endif()
  cmake_path(ABSOLUTE_PATH F_CORPUS BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  add_executable(${name} ${F_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${F_LINKS} fairway_internal)
  if(FAIRWAY_FUZZ)
    # Inputs that the search finds go to the build folder; a failing one is printed and kept beside them.
    set(found ${CMAKE_CURRENT_BINARY_DIR}/${name}_found)
    file(MAKE_DIRECTORY ${found})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_test(NAME fuzz.${name}
      COMMAND ${name} -max_total_time=${FAIRWAY_FUZZ_SECONDS} -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
              -artifact_prefix=${found}/ ${found} ${F_CORPUS})
    math(EXPR limit "${FAIRWAY_FUZZ_SECONDS} + 120")
    set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz TIMEOUT ${limit})
  else()
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/replay_corpus.cc)
    add_test(NAME corpus.${name} COMMAND ${name} ${F_CORPUS})
    set_tests_properties(corpus.${name} PROPERTIES LABELS unit TIMEOUT ${FAIRWAY_TIMEOUT_unit})
  endif()
endfunction()
