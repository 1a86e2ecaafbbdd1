# The library, the public headers and the two ways to find them; the tool installs itself in tools/.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/fairway)
set(pkgconfig_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(TARGETS fairway EXPORT fairway_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/fairway DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh")
install(FILES include/fairway.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT fairway_targets NAMESPACE fairway:: DESTINATION ${package_folder})

configure_package_config_file(cmake/fairwayConfig.cmake.in fairwayConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(fairwayConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fairwayConfig.cmake ${PROJECT_BINARY_DIR}/fairwayConfigVersion.cmake
        DESTINATION ${package_folder})

# The .pc file names its prefix relative to itself, so an installed tree may be moved.
set(FAIRWAY_PC_TO_PREFIX /)
cmake_path(RELATIVE_PATH FAIRWAY_PC_TO_PREFIX BASE_DIRECTORY /${pkgconfig_folder})
configure_file(cmake/fairway.pc.in fairway.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/fairway.pc DESTINATION ${pkgconfig_folder})
