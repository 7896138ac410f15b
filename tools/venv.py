"""Makes the virtual environment that `make` uses: says what it needs before it begins, and how to mend what is missing.

    python3 tools/venv.py .venv

Needs only Python 3.10 or later. Does nothing if the environment is newer than what it is made of.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = (ROOT / "requirements-dev.txt", ROOT / "pyproject.toml")
OLDEST = (3, 10)
ROOM = 2 * 10**9  # bytes that the environment takes with torch's CPU build
ROOM_CUDA = 10 * 10**9  # and about that with CUDA's libraries
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def problem(place: Path) -> str:
    """What is missing on this machine, and what to do; nothing if all is there."""
    if sys.version_info < OLDEST:
        return f"kgen needs Python 3.10 or later, this is {platform.python_version()}; run: make PYTHON=python3.12"
    if sys.platform != "linux":
        return (
            f"the tests need Triton, which has wheels for Linux only, and this is {sys.platform}; "
            "kgen itself runs here: pip install -e ."
        )
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return f"this Python can't make virtual environments; on Debian and Ubuntu: apt install python{version}-venv"
    free = shutil.disk_usage(place.parent).free
    if free < ROOM:
        return f"{place.parent} has {free / 1e9:.1f} GB left, but the environment takes 2 GB or more; make room, or: make VENV=/elsewhere"
    return ""


def has_gpu() -> bool:
    """Whether there is a driver of a GPU, by what it leaves in the file system."""
    return any(Path(each).exists() for each in ("/proc/driver/nvidia/version", "/dev/kfd"))


def notice(place: Path) -> str:
    """What a first run is going to do."""
    lines = [
        f"Making {place} with the versions in requirements-dev.txt; later runs use it as it is."
    ]
    if not has_gpu():
        lines += [
            "PyPI's torch brings CUDA's libraries, several GB. There is no GPU here; the CPU build, 0.2 GB, is enough:",
            f"  PIP_EXTRA_INDEX_URL={CPU_INDEX} make ...",
        ]
    elif shutil.disk_usage(place.parent).free < ROOM_CUDA:
        lines += ["With CUDA's libraries it may take 10 GB, and there is less room than that here."]
    return "\n".join(lines)


def main() -> None:
    """See the top of this file."""
    place = Path(sys.argv[1] if len(sys.argv) > 1 else ".venv").absolute()
    ready = place / ".ready"
    if ready.is_file() and all(ready.stat().st_mtime >= pin.stat().st_mtime for pin in PINS):
        return
    if found := problem(place):
        sys.exit(f"error: {found}")
    print(notice(place), flush=True)
    python = place / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    quiet = [] if sys.stdout.isatty() else ["--quiet", "--progress-bar", "off"]
    wanted = ["-r", ROOT / "requirements-dev.txt", "-e", ROOT]
    if subprocess.run([*pip, "install", *quiet, *wanted], check=False).returncode:
        sys.exit(
            "error: pip could not install the versions in requirements-dev.txt; its own words are above. Without a network, "
            "on a machine that has torch, triton and pytest: make demo VENV=none"
        )
    # What pip says of torch and Triton, whose versions belong together.
    checked = subprocess.run([*pip, "check"], capture_output=True, text=True, check=False)
    wrong = [line for line in checked.stdout.splitlines() if "triton" in line or "torch" in line]
    if wrong:
        sys.exit(
            "error: "
            + "; ".join(wrong)
            + "; take a version of triton that torch asks for in requirements-dev.txt"
        )
    ready.touch()


if __name__ == "__main__":
    main()
