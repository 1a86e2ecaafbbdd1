# The library, the public headers and the two ways to find them; the tool and the NCCL plugin install themselves. `cmake --install`
# installs every component; cmake/packages.cmake makes a Debian package of each.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/fairway)
set(pkgconfig_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(TARGETS fairway EXPORT fairway_targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
install(TARGETS collectives_of_fairway EXPORT fairway_targets)
install(DIRECTORY include/fairway DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
  FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh")
install(FILES include/fairway.h include/fairway_collectives.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(EXPORT fairway_targets NAMESPACE fairway:: DESTINATION ${package_folder} COMPONENT development)

configure_package_config_file(cmake/fairwayConfig.cmake.in fairwayConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(fairwayConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fairwayConfig.cmake ${PROJECT_BINARY_DIR}/fairwayConfigVersion.cmake
        DESTINATION ${package_folder} COMPONENT development)

# The .pc file names its prefix relative to itself, so an installed tree may be moved.
set(FAIRWAY_PC_TO_PREFIX /)
cmake_path(RELATIVE_PATH FAIRWAY_PC_TO_PREFIX BASE_DIRECTORY /${pkgconfig_folder})
configure_file(cmake/fairway.pc.in fairway.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/fairway.pc DESTINATION ${pkgconfig_folder} COMPONENT development)

# The Python module, where a system's interpreter looks for packages of the system; else it is used from the build folder or by
# `pip install .`.
if(FAIRWAY_PYTHON_FOLDER)
  if(NOT TARGET fairway_python)
    message(FATAL_ERROR "FAIRWAY_PYTHON_FOLDER: this build has no Python module (python3-dev, pybind11-dev)")
  endif()
  install(TARGETS fairway_python LIBRARY DESTINATION ${FAIRWAY_PYTHON_FOLDER}/fairway COMPONENT python)
  install(DIRECTORY python/fairway DESTINATION ${FAIRWAY_PYTHON_FOLDER} COMPONENT python
    FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
endif()
