include(GoogleTest)

set(FAIRWAY_TEST_LABELS unit conformance process fault model net rdma_vm gpu)

# Seconds that one test case of a label may take before it counts as hung; sanitizers take several times longer.
set(FAIRWAY_TIMEOUT_unit 30)
set(FAIRWAY_TIMEOUT_conformance 60)
set(FAIRWAY_TIMEOUT_process 60)
set(FAIRWAY_TIMEOUT_fault 120)
set(FAIRWAY_TIMEOUT_model 300)
set(FAIRWAY_TIMEOUT_net 120)
set(FAIRWAY_TIMEOUT_rdma_vm 600)
set(FAIRWAY_TIMEOUT_gpu 120)

# fairway_test(<name> LABEL <label> SOURCES ... [LINKS ...] [TIMEOUT s] [ALONE] [PROPERTIES key value ...] [GUEST ...]): one
# GoogleTest program over the library's insides; each of its cases is a ctest test with the label. TIMEOUT is for one case.
# ALONE: its cases look at the clock, so nothing runs beside them; under a sanitizer, where time says little, only no others of
# that kind do. With the label rdma_vm a guest runs the whole program (GUEST: options of tests/rdma_vm/vm), and its cases, named
# guest.*, report what became of them there.
function(fairway_test name)
  cmake_parse_arguments(T "ALONE" "LABEL;TIMEOUT" "SOURCES;LINKS;PROPERTIES;GUEST" ${ARGN})
  if(NOT T_LABEL IN_LIST FAIRWAY_TEST_LABELS OR NOT T_SOURCES OR T_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "fairway_test(${name}): needs SOURCES and a LABEL of ${FAIRWAY_TEST_LABELS}; "
                        "not understood: ${T_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT ${FAIRWAY_TIMEOUT_${T_LABEL}})
  endif()
  if(FAIRWAY_SANITIZE)
    math(EXPR T_TIMEOUT "${T_TIMEOUT} * 5")
  endif()
  if(T_ALONE AND FAIRWAY_SANITIZE)
    list(APPEND T_PROPERTIES RESOURCE_LOCK clock)
  elseif(T_ALONE)
    list(APPEND T_PROPERTIES RUN_SERIAL TRUE)
  endif()
  set(prefix "")
  add_executable(${name} ${T_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${T_LINKS} fairway_internal GTest::gtest_main GTest::gtest)
  if(T_LABEL STREQUAL "rdma_vm")
    # ctest runs a fixture before the cases that require it, and whatever names an emulator through that.
    set(runner ${PROJECT_SOURCE_DIR}/tests/rdma_vm)
    math(EXPR guest_seconds "${T_TIMEOUT} - 60")
    add_test(NAME ${name}.guest COMMAND ${runner}/run_all $<TARGET_FILE:${name}> --seconds ${guest_seconds} ${T_GUEST})
    set_tests_properties(${name}.guest PROPERTIES LABELS rdma_vm TIMEOUT ${T_TIMEOUT} PROCESSORS 2 FIXTURES_SETUP ${name}
      SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\] guest of")
    set_target_properties(${name} PROPERTIES CROSSCOMPILING_EMULATOR ${runner}/run_case)
    list(APPEND T_PROPERTIES FIXTURES_REQUIRED ${name})
    set(prefix guest.)  # the same case may be in a program that runs here; ctest gives equal names each other's properties
  endif()
  gtest_discover_tests(${name}
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    TEST_PREFIX "${prefix}"
    PROPERTIES LABELS ${T_LABEL} TIMEOUT ${T_TIMEOUT} ${T_PROPERTIES})
endfunction()
