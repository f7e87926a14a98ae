# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034
# What delayd needs on Debian 12 and later, by package name; sourced by quickstart and tests/run.

BUILD_PACKAGES=(
        gcc libc6-dev meson ninja-build pkg-config scdoc
        libcmocka-dev libinih-dev libjson-c-dev libmicrohttpd-dev
        libnl-3-dev libnl-genl-3-dev libsystemd-dev zlib1g-dev
)
DEB_PACKAGES=(dbus-daemon debhelper dpkg-dev python3 python3-pytest systemd)
LINT_PACKAGES=(clang clang-tidy cppcheck git shellcheck)
PACKAGING_PACKAGES=(git groff-base lintian man-db rpm rpmlint shellcheck)
SYSTEM_PACKAGES=(cpio debootstrap e2fsprogs kmod qemu-system-x86 xz-utils)
DEMONSTRATION_PACKAGES=(curl dbus-daemon)
TEST_PACKAGES=(
        dbus-bin dbus-daemon e2fsprogs fio iproute2 kmod libcap2-bin mount procps prometheus
        python3 python3-prometheus-client python3-pytest systemd util-linux
)

missing_packages() {
        local package

        for package in "$@"; do
                [[ $(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null) == ii* ]] || echo "$package"
        done
}

# Installs those of the packages that are missing, and starts none of their services.
install_packages() {
        local -a missing
        local policy=/usr/sbin/policy-rc.d r=0

        if ! command -v dpkg-query >/dev/null; then
                echo "This is no Debian system: make sure that what these Debian packages hold is there: $*" >&2
                return 0
        fi

        mapfile -t missing < <(missing_packages "$@")
        ((${#missing[@]})) || return 0

        if ((EUID != 0)); then
                echo "These packages are missing, and only root can install them: ${missing[*]}" >&2
                echo "Run this script with sudo, or install them first: sudo apt-get install ${missing[*]}" >&2
                return 1
        fi

        echo "Installing ${missing[*]}"
        if [[ -e $policy ]]; then
                policy=
        else
                printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
        fi
        export DEBIAN_FRONTEND=noninteractive
        apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null ||
                { apt-get -qq update && apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null; } || r=$?
        [[ -z $policy ]] || rm -f "$policy"

        ((r == 0)) || echo "apt-get could not install them. Check its messages above and /etc/apt/sources.list." >&2
        return $r
}
