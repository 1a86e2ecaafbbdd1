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

# fairway_test(<name> LABEL <label> SOURCES ... [LINKS ...] [TIMEOUT seconds] [PROPERTIES key value ...]): one GoogleTest
# program over the library's insides; each of its cases is a ctest test with the label. TIMEOUT is for one case.
function(fairway_test name)
  cmake_parse_arguments(T "" "LABEL;TIMEOUT" "SOURCES;LINKS;PROPERTIES" ${ARGN})
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
  add_executable(${name} ${T_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${T_LINKS} fairway_internal GTest::gtest_main GTest::gtest)
  gtest_discover_tests(${name}
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${T_LABEL} TIMEOUT ${T_TIMEOUT} ${T_PROPERTIES})
endfunction()
