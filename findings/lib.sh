# What each finding needs: a folder that goes when it ends, and packages unpacked there. Sourced, not run.

# temp_folder: makes it, and goes there; what was started in the background ends with the script.
temp_folder() {
  work=$(mktemp -d)
  root=$work/root
  mkdir "$root"
  trap 'jobs -p | xargs -r kill 2>/dev/null; rm -rf "$work"' EXIT
  cd "$work"
}

# debian PACKAGE=VERSION ...: unpacked below $root, with its libraries on the path; nothing is installed.
debian() {
  apt-get download "$@" >/dev/null 2>&1 || { echo "cannot download $*: run apt-get update, or the version is gone" >&2; exit 77; }
  local package
  for package in *.deb; do dpkg -x "$package" "$root"; done
  export LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu
}

# pypi PACKAGE==VERSION ...: below $work/site, on PYTHONPATH.
pypi() {
  python3 -m pip install -q --no-deps --target "$work/site" "$@" || { echo "cannot install $*" >&2; exit 77; }
  export PYTHONPATH=$work/site
}

# link_libfabric FILE.c: ./program, with the libfabric that is unpacked below $root.
link_libfabric() {
  command -v gcc >/dev/null || { echo "gcc is not installed" >&2; exit 77; }
  gcc -I"$root/usr/include" "$1" -L"$root/usr/lib/x86_64-linux-gnu" -lfabric -Wl,--allow-shlib-undefined -o program
  # What it needs beside, as Debian's package names it: libibverbs1, librdmacm1, libpsm2-2, libpsm-infinipath1, libnuma1.
  ldd program | grep -q "not found" && { echo "libraries are missing: $(ldd program | grep 'not found' | tr '\n' ' ')" >&2; exit 77; }
  return 0
}
