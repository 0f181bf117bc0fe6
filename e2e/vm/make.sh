#!/usr/bin/env bash
# Builds the files that the virtual machine of tests/cgroup_v2.rs boots from: a kernel of the distribution, an initramfs that
# mounts the disks, a disk with programs of this host, and one with the images that the tests use. Called by that test.
#
#   make.sh CACHE RUN WORKSPACE IMAGES IMAGE PROGRAM...
#
# Kernel and images are stored in CACHE, which is locked; the rest is written to RUN, which belongs to the caller. Nothing is
# installed: the kernel's package is only unpacked.
set -euo pipefail

CACHE=$1 RUN=$2 WORKSPACE=$3 IMAGES=$4 IMAGE=$5
shift 5
HERE=$(dirname "$(readlink -f "$0")")
# Modules that the kernel needs for the disks and for sandboxes, unless they are built in.
MODULES='virtio_pci virtio_blk ext4 overlay loop fuse veth'
# By distribution: the package that depends on the newest small kernel.
KERNELS='linux-image-cloud-amd64 linux-image-virtual'

die() { printf 'make.sh: %s\n' "$*" >&2; exit 1; }

# The packages of a kernel: the image, and its modules if they are in a separate package.
kernel_packages() {
  local meta image
  for meta in $KERNELS; do
    image=$(needs "$meta" 'linux-image-[0-9]')
    [ -n "$image" ] || continue
    printf '%s\n' "$image"
    needs "$image" 'linux-modules-[0-9]'
    return
  done
}

needs() {
  apt-cache depends "$1" 2>/dev/null | sed -n "s/^ *Depends: \($2.*\)\$/\1/p"
}

download() {
  local packages
  mapfile -t packages < <(kernel_packages)
  [ ${#packages[@]} -gt 0 ] && apt-get download -q -o APT::Sandbox::User=root "${packages[@]}" >&2
}

fetch_kernel() {
  [ ! -e "$CACHE/kernel" ] || return 0
  local new=$CACHE/kernel.new package
  rm -rf "$new"
  mkdir -p "$new"
  (
    cd "$new"
    # The package lists may be missing or outdated.
    download || { apt-get update -q >&2 && download; } || die "apt has none of the kernels $KERNELS"
    for package in *.deb; do dpkg-deb -x "$package" .; done
    rm -- *.deb
  )
  mv "$new" "$CACHE/kernel"
}

# Adds a kernel module to the list, after those that it depends on.
add_module() {
  local name=${1//[-_]/[-_]} file needed
  file=$(find "$CACHE/kernel" -name "$name.ko*" -print -quit)
  if [ -z "$file" ]; then
    grep -qr --include=modules.builtin "/$name\.ko" "$CACHE/kernel" || die "the kernel has no $1"
    return 0
  fi
  ! grep -qx "$1" "$RUN/initramfs/modules/list" || return 0
  case $file in
    *.ko) cp "$file" "$RUN/initramfs/modules/$1" ;;
    *.xz) xz -dc "$file" >"$RUN/initramfs/modules/$1" ;;
    *.zst) zstd -dcq "$file" >"$RUN/initramfs/modules/$1" ;;
    *) die "$file is packed in an unknown way" ;;
  esac
  for needed in $(grep -aoz '^depends=.*' "$RUN/initramfs/modules/$1" | tr '\0,' '  ' | sed 's/depends=//'); do
    add_module "$needed"
  done
  printf '%s\n' "$1" >>"$RUN/initramfs/modules/list"
}

# Copies a program and the libraries it is linked with to the same places below a directory.
add_program() {
  local file
  for file in "$2" $(ldd "$2" 2>/dev/null | grep -o '/[^ ]*'); do
    mkdir -p "$1$(dirname "$file")"
    [ -e "$1$file" ] || cp -L "$file" "$1$file"
  done
}

# The shell and tools of a tree, under the path that its scripts name.
add_busybox() {
  mkdir -p "$1/bin"
  add_program "$1" "$(command -v busybox)"
  [ -e "$1/bin/busybox" ] || cp "$(command -v busybox)" "$1/bin/busybox"
}

make_initramfs() {
  local tree=$RUN/initramfs module
  mkdir -p "$tree"/{bin,dev,modules,root}
  : >"$tree/modules/list"
  for module in $MODULES; do add_module "$module"; done
  add_busybox "$tree"
  install -m 755 "$HERE/first" "$tree/init"
  (cd "$tree" && find . | busybox cpio -o -H newc 2>/dev/null) >"$RUN/initramfs.cpio"
  rm -r "$tree"
}

make_root() {
  local tree=$RUN/root program
  mkdir -p "$tree"/{dev,etc,images,proc,run,sys,tmp,opt} "$tree$WORKSPACE/e2e"
  cp -L /etc/mke2fs.conf "$tree/etc/"
  add_busybox "$tree"
  for program in runc mkfs.ext4 e2fsck; do
    add_program "$tree" "$(command -v $program)"
  done
  # Static. The machine's own may be too old.
  if [ -e "$WORKSPACE/target/gvisor/runsc" ]; then
    install -D "$WORKSPACE/target/gvisor/runsc" "$tree/usr/bin/runsc"
  elif command -v runsc >/dev/null; then
    add_program "$tree" "$(command -v runsc)"
  fi
  if command -v lxcfs >/dev/null; then
    add_program "$tree" "$(command -v lxcfs)"
    # Loaded by name when it starts.
    add_program "$tree" "$(find /usr/lib -name liblxcfs.so -print -quit)"
  fi
  for program in "$@"; do add_program "$tree" "$program"; done
  printf 'export SANDBOXD_TEST_ROOTFS=%q\n' "/images/images/layers/$(layers | tail -n 1)" >"$tree/etc/environment"
  printf 'GUEST=%q\n' "$1" >>"$tree/etc/environment"
  install -m 755 "$HERE/init" "$tree/init"
  # Sparse space for the disks of sandboxes.
  mkfs.ext4 -q -F -d "$tree" "$RUN/root.img" 8G
  rm -r "$tree"
}

# The names of the image's layers, topmost first.
layers() {
  sed -n '/"layers"/,/]/s/^ *"\([0-9a-f]\{64\}\)".*/\1/p' "$IMAGES/images/$IMAGE.json"
}

# A disk with an image store that holds one image.
make_images() {
  local names tree=$CACHE/images.new layer name
  mapfile -t names < <(layers)
  [ ${#names[@]} -gt 0 ] || die "$IMAGES holds no image $IMAGE"
  # A different image or script gives a different disk.
  name=$CACHE/images-$(printf '%s\n' "${names[@]}" | cat - "$HERE/make.sh" | sha256sum | cut -c 1-16).img
  if [ ! -e "$name" ]; then
    rm -rf "$tree" "$CACHE"/images-*.img
    mkdir -p "$tree"/images/{images,layers}
    cp "$IMAGES/images/$IMAGE.json" "$tree/images/images/"
    for layer in "${names[@]}"; do cp -a "$IMAGES/layers/$layer" "$tree/images/layers/"; done
    mkfs.ext4 -q -F -d "$tree" "$tree.img" 8G
    mv "$tree.img" "$name"
    rm -rf "$tree"
  fi
  # A hard link: the next caller may replace the disk in the cache.
  ln "$name" "$RUN/images.img"
}

mkdir -p "$CACHE" "$RUN"
exec 9>"$CACHE/lock"
flock 9
fetch_kernel
make_images
flock -u 9
make_initramfs
make_root "$@"
ln -s "$(find "$CACHE/kernel/boot" -name 'vmlinuz-*' -print -quit)" "$RUN/vmlinuz"
