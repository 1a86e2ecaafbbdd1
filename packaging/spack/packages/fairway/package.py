"""Fairway for Spack, from a tree or an unpacked tarball of `make dist`:

    spack repo add packaging/spack
    spack dev-build --source-path . fairway@0.2.0
"""

try:
    from spack_repo.builtin.build_systems.cmake import CMakePackage  # Spack 1.0 and newer
except ImportError:
    pass
from spack.package import *


class Fairway(CMakePackage):
    """Moves bytes between the memories of an AI cluster along the fastest path the hardware has, and says which path it took."""

    license("Apache-2.0")
    version("0.2.0")

    variant("tool", default=True, description="The command fairway")
    variant("hwloc", default=True, description="The machine's tree by hwloc, memory near its device by libnuma")
    variant("verbs", default=True, description="RDMA NICs by libibverbs")
    variant("fabric", default=True, description="EFA, Slingshot and others by libfabric")
    variant("redis", default=False, description="Names of engines in Redis")
    variant("nccl", default=True, description="The network plugin for NCCL")
    variant("python", default=False, description="The Python module")
    variant("cuda", default=False, description="Kernels that copy pages on NVIDIA GPUs; the driver is found at run time either way")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("openssl")
    depends_on("fmt@9:")
    depends_on("cli11", when="+tool")
    depends_on("nlohmann-json", when="+tool")
    depends_on("pugixml", when="+tool")
    depends_on("hwloc@2:", when="+hwloc")
    depends_on("numactl", when="+hwloc")
    depends_on("rdma-core", when="+verbs")
    depends_on("libfabric@1.17:", when="+fabric")
    depends_on("hiredis", when="+redis")
    depends_on("cuda@12:", type="build", when="+cuda")
    extends("python@3.9:", when="+python")
    depends_on("py-pybind11@2.10:", type="build", when="+python")
    depends_on("py-numpy", type="run", when="+python")

    generator("ninja")
    conflicts("%gcc@:11")
    conflicts("%clang@:13")
    conflicts("platform=darwin")

    def cmake_args(self):
        arguments = [
            self.define("FAIRWAY_BUILD_TESTS", False),
            self.define("FAIRWAY_WITH_BENCHMARK", False),
            self.define_from_variant("FAIRWAY_BUILD_NCCL_NET", "nccl"),
            self.define_from_variant("FAIRWAY_WITH_CLI11", "tool"),
            self.define_from_variant("FAIRWAY_WITH_JSON", "tool"),
            self.define_from_variant("FAIRWAY_WITH_PUGIXML", "tool"),
            self.define_from_variant("FAIRWAY_WITH_HWLOC", "hwloc"),
            self.define_from_variant("FAIRWAY_WITH_NUMA", "hwloc"),
            self.define_from_variant("FAIRWAY_WITH_VERBS", "verbs"),
            self.define_from_variant("FAIRWAY_WITH_FABRIC", "fabric"),
            self.define_from_variant("FAIRWAY_WITH_HIREDIS", "redis"),
            self.define("FAIRWAY_WITH_ETCD", False),  # Spack has no http-parser
            self.define_from_variant("FAIRWAY_WITH_PYTHON", "python"),
            self.define_from_variant("FAIRWAY_WITH_NVCC", "cuda"),
        ]
        if self.spec.satisfies("+python"):
            arguments.append(self.define("FAIRWAY_PYTHON", self.spec["python"].command.path))
            arguments.append(self.define("FAIRWAY_PYTHON_FOLDER", self.spec["python"].package.platlib))
        return arguments

    def test_version(self):
        """the tool starts"""
        if self.spec.satisfies("~tool"):
            raise SkipTest("built without the tool")
        fairway = which(self.prefix.bin.fairway)
        assert str(self.version) in fairway("--version", output=str.split)
