"""
Build sdist and wheel, compare them, and use them as a user does.

The wheel that is built from the sdist must equal the wheel that is built from the checkout, and
``twine check`` must accept both files.  Installed into an empty environment, the wheel must offer
its twistd plugins; uninstalled, it must leave nothing behind and remove nothing of Twisted's.

The wheel has the programs of others that the web console uses: with npm on PATH, and without, when
the build backend requires a package with npm.  Without a way to npm's registry no wheel is built, and
the message names the environment variable for a wheel that lacks only these.

Run as ``python tests/packaging/check_wheel.py`` from the top of a checkout, with ``build`` and
``twine`` installed; it needs a package index for the dependencies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

PROGRAMS = (
    "exec-apiserver",
    "exec-broker",
    "exec-nodeserver",
    "exec-poollet",
    "exec-runtime",
    "exec-spacemanager",
    "exec-standalone",
)
PLUGINS = ("twisted/plugins/twisted_exec_plugins.py", "twisted/plugins/twisted_exec_drivers.py")
COMMANDS = ("kubectl-console", "kubectl_complete-console", "twisted-exec")
SOURCES = (
    "CHANGELOG.rst",
    "CONTRIBUTING.rst",
    "LICENSE",
    "README.md",
    "docs/index.rst",
    "tests/__init__.py",
    "tox.ini",
    "twisted_exec/web/vendoring/package-lock.json",
)
"""Files that packagers need and a wheel does not have."""

PAGE = "twisted_exec/web/page/"
VENDORED = ("xterm.js", "xterm.css", "asciinema-player.js", "LICENSES.txt")
WITHOUT_TERMINAL = "TWISTED_EXEC_WITHOUT_TERMINAL"
CLOSED_REGISTRY = "http://127.0.0.1:9/"
"""The port of ``discard``, where nothing listens."""


def run(*argv: str | Path, **environ: str) -> str:
    """
    Run a command that must succeed; return its standard output.

    :param environ: further environment variables.
    """
    command = [str(word) for word in argv]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environ})
    if result.returncode != 0:
        print(result.stdout, result.stderr, sep="\n", file=sys.stderr)
    result.check_returncode()
    return result.stdout


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def check_sdist(sdist: Path) -> None:
    """Check that the sdist has what packagers need, below one directory."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    missing = [name for name in SOURCES if name not in names]
    assert not missing, f"{sdist.name} lacks {missing}: see MANIFEST.in"
    built = [name for name in names if name.startswith(f"{PAGE}vendor/")]
    assert not built, f"{sdist.name} has built files: {built}"


def check_equal(from_sdist: Path, from_checkout: Path) -> None:
    """Check that two wheels have the same files with the same bytes."""
    ours, theirs = contents(from_sdist), contents(from_checkout)
    differing = sorted(
        name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)
    )
    assert from_sdist.name == from_checkout.name, (from_sdist.name, from_checkout.name)
    assert not differing, (
        f"the wheel of the sdist and the wheel of the checkout differ in {differing}: "
        "see MANIFEST.in, and remove a stale build/ directory"
    )


def check_vendored(names: Iterable[str]) -> None:
    """Check that a wheel has the vendored files, and their licences among its metadata."""
    missing = [name for name in VENDORED if f"{PAGE}vendor/{name}" not in names]
    assert not missing, f"the wheel lacks {missing}: see twisted_exec/web/vendoring"
    licenses = f"licenses/{PAGE}vendor/LICENSES.txt"
    assert any(name.endswith(licenses) for name in names), "see license_files in setup.cfg"


def built_with(sdist: Path, directory: Path, **environ: str) -> Path:
    """Unpack an sdist, which has no vendored files, and build its wheel with these variables."""
    shutil.unpack_archive(sdist, directory)
    (source,) = directory.iterdir()
    run(sys.executable, "-m", "build", "--wheel", source, **environ)
    (wheel,) = (source / "dist").glob("*.whl")
    return wheel


def check_without_npm(sdist: Path, wheel: Path, scratch: Path) -> None:
    """Check that the wheel is the same when npm is not on PATH."""
    (scratch / "bin").mkdir()
    without = built_with(sdist, scratch / "without-npm", PATH=str(scratch / "bin"))
    check_equal(without, wheel)


def check_without_registry(sdist: Path, wheel: Path, scratch: Path) -> None:
    """Check that there is no wheel when npm cannot reach its registry, or one without the vendored files."""
    closed = {
        "npm_config_registry": CLOSED_REGISTRY,
        "npm_config_fetch_retries": "0",
        "npm_config_cache": str(scratch / "empty"),
    }
    print("This build must fail, because it cannot reach npm's registry:", flush=True)
    try:
        built_with(sdist, scratch / "without-registry", **closed)
    except subprocess.CalledProcessError as problem:
        assert WITHOUT_TERMINAL in problem.stdout + problem.stderr
    else:
        raise AssertionError("a wheel was built although npm cannot reach its registry")
    closed[WITHOUT_TERMINAL] = "1"
    without = built_with(sdist, scratch / "without-terminal", **closed)
    lost = contents(wheel).keys() - contents(without).keys()
    assert lost, f"{WITHOUT_TERMINAL} left nothing out"
    others = [name for name in lost if f"{PAGE}vendor/" not in name]
    assert not others, f"a wheel without vendored files lacks {others}, too"
    print(f"wheel with the web console's terminal: {wheel.stat().st_size:,} bytes, ", end="")
    print(f"without: {without.stat().st_size:,} bytes")


def check_version(printed: str, wheel: Path) -> None:
    """Check that the programs name the version of the wheel, and between releases the commit."""
    version = wheel.name.split("-")[1]
    command = ("git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=.dirty")
    commit = run(*command).strip()
    assert printed.startswith(f"twisted-exec {version}"), (printed, wheel.name)
    assert commit in printed, (printed, commit)


def files_below(site_packages: Path) -> set[str]:
    """Return every installed file except the caches that an import leaves behind."""
    return {
        str(path.relative_to(site_packages))
        for path in site_packages.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and path.name != "dropin.cache"
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        run(sys.executable, "-m", "build", "--outdir", root / "dist", ".")
        run(sys.executable, "-m", "build", "--wheel", "--outdir", root / "direct", ".")
        (sdist,) = (root / "dist").glob("*.tar.gz")
        (wheel,) = (root / "dist").glob("*.whl")
        (direct,) = (root / "direct").glob("*.whl")
        check_sdist(sdist)
        check_equal(wheel, direct)
        check_vendored(contents(wheel))
        check_without_npm(sdist, wheel, root)
        check_without_registry(sdist, wheel, root)
        run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
        venv.create(root / "env", with_pip=True)
        python = root / "env" / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", wheel)

        offers = run(root / "env" / "bin" / "twistd", "--help")
        missing = [name for name in PROGRAMS if name not in offers]
        assert not missing, f"twistd does not offer {missing}"
        for command in COMMANDS:
            run(root / "env" / "bin" / command, "--help")
        check_version(run(root / "env" / "bin" / "twisted-exec", "--version"), wheel)

        (site_packages,) = (root / "env" / "lib").glob("python*/site-packages")
        before = files_below(site_packages)
        run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "twisted-exec")
        removed = before - files_below(site_packages)
        foreign = [
            name
            for name in removed
            if not name.startswith(("twisted_exec/", "twisted_exec-")) and name not in PLUGINS
        ]
        left = [name for name in files_below(site_packages) if "twisted_exec" in name]
        assert not foreign, f"uninstalling removed what is not ours: {foreign}"
        assert not left, f"uninstalling left behind {left}"
        run(python, "-c", "import twisted.plugins, twisted.web.server")
    print(f"{sdist.name} and {wheel.name} agree; the wheel carries the plugins, uninstalls cleanly")


if __name__ == "__main__":
    main()
