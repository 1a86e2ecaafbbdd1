set(FAIRWAY_TEST_LABELS unit conformance process fault model net rdma_vm gpu)

# Seconds that one test case of a label may take before it counts as hung; sanitizers take several times longer.
set(FAIRWAY_TIMEOUT_unit 30)
set(FAIRWAY_TIMEOUT_conformance 60)
set(FAIRWAY_TIMEOUT_process 60)
set(FAIRWAY_TIMEOUT_fault 120)
set(FAIRWAY_TIMEOUT_model 900)  # the longest search computes for five minutes, where cores are slow
set(FAIRWAY_TIMEOUT_net 120)
set(FAIRWAY_TIMEOUT_rdma_vm 600)
set(FAIRWAY_TIMEOUT_gpu 120)

find_package(Python3 COMPONENTS Interpreter REQUIRED)  # scripts/run_cases

# What the tests of a label are built from: `cmake --build build/test --target tests_unit`; tests_long is the rest.
foreach(label IN ITEMS ${FAIRWAY_TEST_LABELS} repository fuzz iwarp long)
  add_custom_target(tests_${label})
endforeach()

# fairway_test(<name> LABEL <label> SOURCES ... [LINKS ...] [TIMEOUT s] [ALONE] [EACH filter] [SHARDS n] [LONG filter] [ONE_THREAD]
#   [PROPERTIES key value ...] [GUEST ...]): one GoogleTest program over the library's insides, which scripts/run_cases runs
# for ctest.
#   TIMEOUT     for one case
#   ALONE       its cases measure time, so nothing runs beside them; under a sanitizer, where time says little, only no others of that kind do
#   EACH        the cases that need a process each, as in --gtest_filter; one process runs the others
#   SHARDS      so many ctest tests share its cases; they may run at the same time
#   LONG        the cases that only `make test-long` runs, as in --gtest_filter; '*' is all of them
#   ONE_THREAD  ThreadSanitizer has nothing to see: only `make test-long` runs it there
# With the label rdma_vm a guest runs the program (GUEST: options of tests/rdma_vm/vm).
function(fairway_test name)
  cmake_parse_arguments(T "ALONE;ONE_THREAD" "LABEL;TIMEOUT;SHARDS;LONG;EACH" "SOURCES;LINKS;PROPERTIES;GUEST" ${ARGN})
  if(NOT T_LABEL IN_LIST FAIRWAY_TEST_LABELS OR NOT T_SOURCES OR T_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "fairway_test(${name}): needs SOURCES and a LABEL of ${FAIRWAY_TEST_LABELS}; "
                        "not understood: ${T_UNPARSED_ARGUMENTS}")
  endif()
  add_executable(${name} ${T_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${T_LINKS} fairway_internal GTest::gtest_main GTest::gtest)
  fairway_test_cases(${name} ${ARGN})
endfunction()

# The same for a program that is there: its ctest tests. NAME: what they are called, for a second set of them.
function(fairway_test_cases name)
  cmake_parse_arguments(T "ALONE;ONE_THREAD" "LABEL;TIMEOUT;SHARDS;LONG;EACH;NAME" "SOURCES;LINKS;PROPERTIES;GUEST" ${ARGN})
  set(limit ${T_TIMEOUT})
  if(NOT limit)
    set(limit ${FAIRWAY_TIMEOUT_${T_LABEL}})
  endif()
  if(FAIRWAY_SANITIZE)
    math(EXPR limit "${limit} * 5")
  endif()
  if(T_ALONE AND FAIRWAY_SANITIZE)
    list(APPEND T_PROPERTIES RESOURCE_LOCK clock)
  elseif(T_ALONE)
    list(APPEND T_PROPERTIES RUN_SERIAL TRUE)
  endif()

  set(labels ${T_LABEL} cases)
  if(T_LONG STREQUAL "*" OR (T_ONE_THREAD AND FAIRWAY_SANITIZE MATCHES "thread"))
    list(APPEND labels long)
    add_dependencies(tests_long ${name})
  else()
    add_dependencies(tests_${T_LABEL} ${name})
  endif()

  # ThreadSanitizer follows no child of a process that has, or has kept, a second thread.
  if(T_LABEL STREQUAL "process" AND FAIRWAY_SANITIZE MATCHES "thread")
    set(T_EACH *)
  endif()
  set(options --limit ${limit})
  if(T_EACH)
    list(APPEND options "--each=${T_EACH}")
  endif()
  if(T_LONG AND NOT T_LONG STREQUAL "*")
    list(APPEND options "--long=${T_LONG}")
  endif()
  set(around)
  if(T_LABEL STREQUAL "rdma_vm")
    set(around -- ${PROJECT_SOURCE_DIR}/tests/rdma_vm/in_guest --seconds ${limit} ${T_GUEST} --)
    list(APPEND T_PROPERTIES PROCESSORS 2)
  endif()
  # ctest starts what costs most first: left for the end, programs of two processes wait for each other.
  if("PROCESSORS" IN_LIST T_PROPERTIES AND NOT "COST" IN_LIST T_PROPERTIES)
    list(APPEND T_PROPERTIES COST 100)
  endif()
  if(NOT T_SHARDS)
    set(T_SHARDS 1)
  endif()
  if(NOT T_NAME)
    set(T_NAME ${name})
  endif()
  math(EXPR last "${T_SHARDS} - 1")
  foreach(shard RANGE ${last})
    set(test ${T_NAME})
    if(T_SHARDS GREATER 1)
      set(test ${T_NAME}.${shard})
    endif()
    # ctest's own limit is the last resort: run_cases knows which case hangs.
    add_test(NAME ${test} COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/scripts/run_cases ${options}
      --name ${test} --shard ${shard}/${T_SHARDS} $<TARGET_FILE:${name}> ${around})
    set_tests_properties(${test} PROPERTIES LABELS "${labels}" TIMEOUT 3600 SKIP_RETURN_CODE 77 ${T_PROPERTIES})
  endforeach()
endfunction()

# Its cases once more in `make test-long`, with the short path off (tests/support/open_engine.h).
function(fairway_test_ordinary name)
  fairway_test_cases(${name} ${ARGN} NAME ${name}_ordinary LONG * PROPERTIES ENVIRONMENT FAIRWAY_TEST_ORDINARY_WAY=1)
endfunction()
