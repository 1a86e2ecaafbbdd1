"""Builds libfairway.so and the module with CMake, and puts both into the package. See pyproject.toml."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent
VERSION = re.search(r"^project\(fairway VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE).group(1)


def pybind11_of_pip():
    """Where a pybind11 that pip installed keeps what CMake looks for; nothing where there is none, or a package of the system."""
    try:
        import pybind11
    except ImportError:
        return []
    return [f"-Dpybind11_DIR={pybind11.get_cmake_dir()}"]


class CMakeBuild(build_ext):
    def build_extension(self, extension):
        if shutil.which("cmake") is None:
            raise SystemExit("fairway: building needs CMake 3.25 or newer: apt-get install cmake (scripts/packages.txt has all)")
        # Kept beside other builds, so that a second `pip install .` compiles what has changed.
        build = ROOT / "build" / f"wheel-{sys.implementation.cache_tag}"
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        options = [
            f"-DFAIRWAY_PYTHON={sys.executable}",
            *pybind11_of_pip(),
            "-DFAIRWAY_WHEEL=ON",
            "-DCMAKE_BUILD_TYPE=Release",
            "-DCMAKE_UNITY_BUILD=ON",
            "-DCMAKE_UNITY_BUILD_BATCH_SIZE=12",
            *os.environ.get("FAIRWAY_CMAKE_ARGS", "").split(),
        ]
        subprocess.run(["cmake", "-S", ROOT, "-B", build, *generator, *options], check=True)
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
        subprocess.run(["cmake", "--build", build, "--target", "fairway_python", "-j", jobs], check=True)
        package = pathlib.Path(self.get_ext_fullpath(extension.name)).resolve().parent
        package.mkdir(parents=True, exist_ok=True)
        strip = shutil.which("strip")
        for source in [*(build / "python/fairway").glob("_fairway*.so"), build / "src/libfairway.so.0"]:
            target = package / source.name
            shutil.copyfile(source, target)
            if strip:
                subprocess.run([strip, "--strip-unneeded", target], check=True)


setup(version=VERSION, license="Apache-2.0", ext_modules=[Extension("fairway._fairway", [])], cmdclass={"build_ext": CMakeBuild})
