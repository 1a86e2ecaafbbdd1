include(GNUInstallDirs)

# The library and the public headers; the tool installs itself.
install(TARGETS fairway EXPORT fairway_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/fairway DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
