# Manual pages and shell completions of the tool, from what the built tool says of itself.
if(FAIRWAY_SANITIZE OR FAIRWAY_FUZZ OR CMAKE_CROSSCOMPILING)
  return()
endif()
find_package(Python3 COMPONENTS Interpreter QUIET)
if(NOT Python3_FOUND)
  message(STATUS "fairway: python3 is absent, so manual pages are not made")
  return()
endif()

set(pages ${CMAKE_CURRENT_BINARY_DIR}/pages)
set(made ${pages}/bash/fairway ${pages}/zsh/_fairway ${pages}/fish/fairway.fish)
file(MAKE_DIRECTORY ${pages}/bash ${pages}/zsh ${pages}/fish)
add_custom_command(OUTPUT ${pages}/man/fairway.1.gz ${made}
  COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/scripts/man_pages
          $<TARGET_FILE:fairway_tool> ${PROJECT_VERSION} ${pages}/man
  COMMAND $<TARGET_FILE:fairway_tool> completion bash > ${pages}/bash/fairway
  COMMAND $<TARGET_FILE:fairway_tool> completion zsh > ${pages}/zsh/_fairway
  COMMAND $<TARGET_FILE:fairway_tool> completion fish > ${pages}/fish/fairway.fish
  DEPENDS fairway_tool ${PROJECT_SOURCE_DIR}/scripts/man_pages
  COMMENT "Making the tool's manual pages and completions")
add_custom_target(fairway_pages ALL DEPENDS ${pages}/man/fairway.1.gz)

# Debian's zsh has a folder of its own for what packages bring.
set(zsh_folder site-functions)
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(zsh_folder vendor-completions)
endif()
install(DIRECTORY ${pages}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools FILES_MATCHING PATTERN "*.1.gz")
install(FILES ${pages}/bash/fairway DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT tools)
install(FILES ${pages}/zsh/_fairway DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${zsh_folder} COMPONENT tools)
install(FILES ${pages}/fish/fairway.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT tools)
