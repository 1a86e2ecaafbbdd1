# A toolchain for 64-bit Arm: Debian's cross compiler, with libraries of Debian's arm64 packages that scripts/aarch64 has
# unpacked in FAIRWAY_ARM_ROOT, and QEMU's user mode to run what was built.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES FAIRWAY_ARM_ROOT)
set(CMAKE_FIND_ROOT_PATH ${FAIRWAY_ARM_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# OpenSSL's configuration.h is in the folder of its architecture.
set(CMAKE_CXX_FLAGS_INIT "-isystem ${FAIRWAY_ARM_ROOT}/usr/include/aarch64-linux-gnu")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${FAIRWAY_ARM_ROOT}/usr/lib/aarch64-linux-gnu")
