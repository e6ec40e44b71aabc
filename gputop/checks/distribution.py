"""Installation commands of this Linux distribution."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from probes.ebpf import rights

OS_RELEASE = Path("/etc/os-release")

# ID or ID_LIKE of os-release -> what installs NVIDIA's driver
_DRIVERS = {
    "debian": "apt-get install nvidia-driver",
    "ubuntu": "apt-get install ubuntu-drivers-common && ubuntu-drivers install",
    "fedora": "dnf install akmod-nvidia",
    "rhel": "dnf install nvidia-driver",
    "arch": "pacman -S nvidia",
}


@dataclass(frozen=True, slots=True)
class Distribution:
    """A Linux distribution."""

    name: str  # full name, for instance ``Debian GNU/Linux 12 (bookworm)``
    install_bcc: str  # command that installs bcc
    install_driver: str  # command that installs NVIDIA's driver


def read_distribution(path: Path | None = None) -> Distribution:
    """Read os-release (freedesktop.org); derivatives count as their parent."""
    release = path or OS_RELEASE
    try:
        lines = [line.partition("=") for line in release.read_text(errors="replace").splitlines()]
    except OSError:
        lines = []
    fields = {key: value.strip("\"'") for key, _, value in lines}
    kinds = [fields.get("ID", ""), *fields.get("ID_LIKE", "").split()]
    driver = next((_DRIVERS[kind] for kind in kinds if kind in _DRIVERS), "install NVIDIA's driver")
    return Distribution(
        fields.get("PRETTY_NAME", "an unknown distribution"), rights.install_bcc(release), driver
    )
