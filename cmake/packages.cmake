# Debian packages, one for each component of the installation (cmake/install.cmake): `make packages`, which is the preset
# `packages` and cpack. What a package's programs need of others is found by dpkg-shlibdeps.
if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  message(FATAL_ERROR "FAIRWAY_PACKAGES: packages install to /usr; configure with the preset packages")
endif()

# The release that CHANGELOG.md tells of last, and its day.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/CHANGELOG.md)
file(STRINGS CHANGELOG.md heading REGEX "^## \\[[0-9]" LIMIT_COUNT 1)
if(NOT heading MATCHES "^## \\[${PROJECT_VERSION}\\] - ([0-9-]+)$")
  message(FATAL_ERROR "CHANGELOG.md: the newest release is '${heading}' and the project's version ${PROJECT_VERSION}")
endif()
set(day ${CMAKE_MATCH_1})
set(maintainer "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
if("$ENV{DEBFULLNAME}" STREQUAL "" OR "$ENV{DEBEMAIL}" STREQUAL "")
  message(FATAL_ERROR "FAIRWAY_PACKAGES: say whose packages these are by DEBFULLNAME and DEBEMAIL")
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR})  # the packages, and what they are made in
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${maintainer}")
set(CPACK_DEBIAN_PACKAGE_SOURCE fairway)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/src)  # libfairway.so.0, whose package is named below

set(docs ${PROJECT_BINARY_DIR}/package_docs)
find_program(FAIRWAY_GZIP gzip REQUIRED)
execute_process(COMMAND date -u -R -d ${day} OUTPUT_VARIABLE date OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
file(CONFIGURE OUTPUT ${docs}/changelog.Debian @ONLY CONTENT
"fairway (${PROJECT_VERSION}-1) bookworm; urgency=medium

  * Release ${PROJECT_VERSION}; changelog.gz says what is in it.

 -- ${maintainer}  ${date}
")
file(CONFIGURE OUTPUT ${docs}/copyright @ONLY CONTENT
"Fairway moves bytes between the memories of an AI cluster.

Copyright 2026 the authors of Fairway

Licensed under the Apache License, Version 2.0. On Debian systems its text is in
/usr/share/common-licenses/Apache-2.0.
")
file(COPY_FILE ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${docs}/changelog)
execute_process(COMMAND ${FAIRWAY_GZIP} -9nf ${docs}/changelog ${docs}/changelog.Debian COMMAND_ERROR_IS_FATAL ANY)

# fairway_package(<component> NAME <package> SECTION <section> SYNOPSIS <one line> DESCRIPTION <lines> [NEEDS packages of this build]
#   [RECOMMENDS ...] [SUGGESTS ...] [PROGRAMS]): the component as a package. With PROGRAMS it has some, or libraries.
function(fairway_package component)
  cmake_parse_arguments(P PROGRAMS "NAME;SECTION;SYNOPSIS;DESCRIPTION;RECOMMENDS;SUGGESTS" NEEDS ${ARGN})
  string(TOUPPER ${component} key)
  set(needs "")
  foreach(needed IN LISTS P_NEEDS)
    if(needed MATCHES "^(lib)?fairway")
      string(APPEND needed " (= ${PROJECT_VERSION}-1)")
    endif()
    list(APPEND needs ${needed})
  endforeach()
  list(JOIN needs ", " needs)
  foreach(pair IN ITEMS "PACKAGE_NAME=${P_NAME}" "PACKAGE_SECTION=${P_SECTION}" "DESCRIPTION=${P_SYNOPSIS}\n${P_DESCRIPTION}"
                        "PACKAGE_DEPENDS=${needs}" "PACKAGE_RECOMMENDS=${P_RECOMMENDS}" "PACKAGE_SUGGESTS=${P_SUGGESTS}"
                        "PACKAGE_SHLIBDEPS=${P_PROGRAMS}")
    string(REGEX MATCH "^[A-Z_]+" name "${pair}")
    string(REGEX REPLACE "^[A-Z_]+=" "" value "${pair}")
    set(CPACK_DEBIAN_${key}_${name} "${value}" PARENT_SCOPE)
  endforeach()
  install(FILES ${docs}/copyright ${docs}/changelog.gz ${docs}/changelog.Debian.gz DESTINATION share/doc/${P_NAME}
          COMPONENT ${component})
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${component} PARENT_SCOPE)
endfunction()

# fairway_override(<component> <package> <why> <tags of lintian ...>)
function(fairway_override component package why)
  list(JOIN ARGN "\n${package}: " tags)
  file(WRITE ${docs}/overrides/${package} "# ${why}\n${package}: ${tags}\n")
  install(FILES ${docs}/overrides/${package} DESTINATION share/lintian/overrides COMPONENT ${component})
endfunction()

fairway_package(runtime NAME libfairway0 SECTION libs PROGRAMS
  SYNOPSIS "moves bytes between the memories of an AI cluster (library)"
  DESCRIPTION "Fairway moves bytes between GPU and host memories of one host and of many,
over shared memory, NVLink, RDMA, libfabric or TCP. It says which path a
transfer took, what that path should reach, and why it is slow when it is.
.
This package has the shared library."
  RECOMMENDS "pci.ids" SUGGESTS "ibverbs-providers, libfabric1, librdmacm1")
# Before 1.0 a minor version may change the API, and the soname stays.
math(EXPR next_minor "${PROJECT_VERSION_MINOR} + 1")
set(below ${PROJECT_VERSION_MAJOR}.${next_minor})
file(WRITE ${docs}/shlibs "libfairway 0 libfairway0 (>= ${PROJECT_VERSION}), libfairway0 (<< ${below})\n")
file(WRITE ${docs}/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${docs}/shlibs ${docs}/triggers)
fairway_override(runtime libfairway0 "CPack writes them beside the trigger" maintscript-calls-ldconfig)

fairway_package(development NAME libfairway-dev SECTION libdevel NEEDS libfairway0
  SYNOPSIS "moves bytes between the memories of an AI cluster (development)"
  DESCRIPTION "Fairway moves bytes between GPU and host memories of one host and of many.
.
This package has the headers for C++20 and C, and what CMake and pkg-config
need to find the library."
  SUGGESTS "cmake, pkg-config")
install(DIRECTORY examples/c examples/installed DESTINATION share/doc/libfairway-dev/examples COMPONENT development
        PATTERN CMakeLists.txt EXCLUDE)

if(TARGET fairway_tool)
  fairway_package(tools NAME fairway-tools SECTION net PROGRAMS
    SYNOPSIS "shows what moves bytes in a machine, and what is wrong with it"
    DESCRIPTION "The tool fairway draws the machine (GPUs, NICs, the paths between them),
predicts and measures what the paths reach, finds what is misconfigured and
what that costs, and runs NCCL over Fairway."
    RECOMMENDS "pci.ids" SUGGESTS "fairway-nccl, python3-fairway, ibverbs-providers, libfabric1, librdmacm1, perftest, librsvg2-bin")
endif()

if(TARGET fairway_nccl_net)
  fairway_package(nccl NAME fairway-nccl SECTION libs NEEDS libfairway0 PROGRAMS
    SYNOPSIS "network plugin that lets NCCL run over Fairway"
    DESCRIPTION "NCCL loads this library where NCCL_NET_PLUGIN=fairway is set. The command
fairway nccl env (package fairway-tools) tries it and prints the settings."
    SUGGESTS "fairway-tools")
  set(CPACK_DEBIAN_NCCL_PACKAGE_CONTROL_EXTRA ${docs}/triggers)
  fairway_override(nccl fairway-nccl "a plugin, under the name by which NCCL looks for it"
    maintscript-calls-ldconfig package-name-doesnt-match-sonames shared-library-lacks-version)
endif()

if(FAIRWAY_PYTHON_FOLDER)
  math(EXPR next "${Python_VERSION_MINOR} + 1")
  fairway_package(python NAME python3-fairway SECTION python PROGRAMS
    NEEDS libfairway0 "python3 (>= 3.${Python_VERSION_MINOR})" "python3 (<< 3.${next})" "python3:any"
    SYNOPSIS "moves bytes between the memories of an AI cluster (Python)"
    DESCRIPTION "Fairway moves bytes between GPU and host memories of one host and of many.
.
This package has the Python module. NumPy arrays and torch tensors go as they
are. A KV cache, NIXL's API and a connector for vLLM stand on it."
    RECOMMENDS "python3-numpy")
  # Byte code beside the module, as every Python package of the system has it, and none left when it goes.
  file(CONFIGURE OUTPUT ${docs}/postinst @ONLY CONTENT
"#!/bin/sh
set -e
if [ \"$1\" = configure ] && command -v py3compile >/dev/null 2>&1; then py3compile -p python3-fairway; fi
")
  file(CONFIGURE OUTPUT ${docs}/prerm @ONLY CONTENT
"#!/bin/sh
set -e
if command -v py3clean >/dev/null 2>&1; then py3clean -p python3-fairway; fi
")
  file(CHMOD ${docs}/postinst ${docs}/prerm PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
       WORLD_READ WORLD_EXECUTE)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA ${docs}/postinst ${docs}/prerm)
endif()

add_custom_target(packaged)  # what the packages hold, and not what else this tree builds
foreach(part IN ITEMS fairway fairway_tool fairway_pages fairway_nccl_net fairway_python)
  if(TARGET ${part})
    add_dependencies(packaged ${part})
  endif()
endforeach()
include(CPack)
