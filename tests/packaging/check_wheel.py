"""
Build sdist and wheel, compare them, and use them as a user does.

Two builds in different directories, of files with different dates, with different umasks must have the same bytes:
in one of them the wheel is built from the sdist, in the other without it.  ``twine check`` must
accept both files.

An index of Python packages on loopback serves the wheel, and ``pip``, ``pipx`` and ``uv tool install`` install it
from there.  Each installation must run the commands of ``README.md``.  The one of pip must offer the twistd plugins;
uninstalled, it must leave nothing behind and remove nothing of Twisted's.

The wheel has the programs of others that the web console uses, their licences and a list of them: with npm on
PATH, and without, when the build backend requires a package with npm.  Without a way to npm's registry no wheel is
built, and the message names the environment variable for a wheel that lacks only these.

Run as ``python tests/packaging/check_wheel.py`` from the top of a checkout, with ``build``, ``pipx``, ``twine`` and
``uv`` installed; it needs a package index for the dependencies.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import venv
import zipfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PROGRAMS = (
    "exec-apiserver",
    "exec-broker",
    "exec-nodeserver",
    "exec-poollet",
    "exec-mcp",
    "exec-racks",
    "exec-sshd",
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
    "SECURITY.md",
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


BUILD = (sys.executable, "-m", "build", "--installer", "uv")
OLD = 10**9
"""A date of 2001, in seconds."""

START_SECONDS = 120


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


def together(*actions: Callable[[], Any]) -> list[Any]:
    """Run actions in threads of their own; return their results once all have ended."""
    with ThreadPoolExecutor(len(actions)) as pool:
        futures = [pool.submit(action) for action in actions]
    return [future.result() for future in futures]


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


def copied(directory: Path, date: int | None = None) -> Path:
    """
    Copy the files of the checkout that git knows; return the copy.

    :param date: that of the copied files, in seconds; by default now.
    """
    for name in run("git", "ls-files", "-z").split("\0"):
        if name and os.path.isfile(name):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, directory / name)
            if date is not None:
                os.utime(directory / name, (date, date))
    # The builds are of the same commit; .git is a file in a second working tree.
    git = Path(run("git", "rev-parse", "--absolute-git-dir").strip())
    (directory / ".git").write_text(f"gitdir: {git}\n")
    return directory


def check_same(ours: Path, theirs: Path) -> None:
    """Check that two builds have the same bytes."""
    if ours.suffix == ".whl":
        check_equal(ours, theirs)
    assert ours.read_bytes() == theirs.read_bytes(), f"two builds of {ours.name} differ"
    digest = hashlib.sha256(ours.read_bytes()).hexdigest()
    print(f"two builds of {ours.name} have the SHA-256 {digest}", flush=True)


def check_bill(files: dict[str, bytes]) -> None:
    """Check that a wheel lists the programs in it."""
    (name,) = (name for name in files if name.endswith(".dist-info/sboms/twisted-exec.cdx.json"))
    bill = json.loads(files[name])
    listed = {component["name"]: component["version"] for component in bill["components"]}
    built = json.loads(files[f"{PAGE}vendor/versions.json"])["packages"]
    assert listed == {each.rpartition("/")[2]: version for each, version in built.items()}, listed


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
    run(*BUILD, "--wheel", source, **environ)
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


@contextmanager
def index_of(wheel: Path, directory: Path) -> Iterator[str]:
    """Serve an index of Python packages that has only this wheel; yield its URL."""
    place = directory / "simple" / "twisted-exec"
    place.mkdir(parents=True)
    shutil.copy(wheel, place)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    link = f'<a href="{wheel.name.replace("+", "%2B")}#sha256={digest}">{wheel.name}</a>'
    (place / "index.html").write_text(f"<!DOCTYPE html><title>twisted-exec</title>{link}")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(directory)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple/"
    finally:
        server.shutdown()
        server.server_close()


def installed(index: str, version: str, root: Path) -> dict[str, Path]:
    """Install the package from the index in three ways; return the directory of the commands of each."""
    required = f"twisted-exec=={version}"
    pip, pipx, uv = root / "env" / "bin", root / "pipx-bin", root / "uv-bin"
    venv.create(root / "env", with_pip=True)
    run(pip / "python", "-m", "pip", "install", "--quiet", required, PIP_EXTRA_INDEX_URL=index)
    homes = {"PIPX_HOME": str(root / "pipx"), "PIPX_BIN_DIR": str(pipx)}
    homes["PIPX_DEFAULT_BACKEND"] = "pip"  # it would take uv, which has its own turn
    pipx_install = (sys.executable, "-m", "pipx", "install", "--python", sys.executable)
    run(*pipx_install, required, PIP_EXTRA_INDEX_URL=index, **homes)
    homes = {"UV_TOOL_DIR": str(root / "uv"), "UV_TOOL_BIN_DIR": str(uv)}
    uv_install = (sys.executable, "-m", "uv", "tool", "install", "--python", sys.executable)
    run(*uv_install, required, UV_INDEX=index, **homes)
    return {"pip": pip, "pipx": pipx, "uv tool install": uv}


def readme_commands() -> list[list[str]]:
    """Return the commands of ``README.md`` that open the console of a machine."""
    blocks = re.findall(r"^```sh\n(.*?)^```", Path("README.md").read_text(), re.M | re.S)
    lines = [line.partition("#")[0].split() for line in "".join(blocks).splitlines()]
    commands = [
        line for line in lines if line[:2] in (["kubectl", "console"], ["twisted-exec", "web"])
    ]
    assert {command[0] for command in commands} == {"kubectl", "twisted-exec"}, commands
    return commands


@contextmanager
def standalone(twistd: Path, directory: Path) -> Iterator[Path]:
    """Start ``exec-standalone`` as ``README.md`` does, at a free port; yield the kubeconfig."""
    words = ("-n", "--pidfile=", "exec-standalone")
    assert " ".join(("twistd", *words)) in Path("README.md").read_text()
    directory.mkdir()
    with open(directory / "log", "w+") as log:
        options = ("--port", "0", "--no-keep-machines")
        process = subprocess.Popen(
            [twistd, *words, *options],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            kubeconfig = directory / "exec-state" / "admin.kubeconfig"
            for _ in range(START_SECONDS * 10):
                if kubeconfig.exists() or process.poll() is not None:
                    break
                time.sleep(0.1)
            log.seek(0)
            assert kubeconfig.exists(), log.read()
            yield kubeconfig
        finally:
            process.terminate()
            process.wait(START_SECONDS)


def check_readme(how: str, commands: Path, kubeconfig: Path) -> None:
    """Run the commands of ``README.md`` with an installation."""
    environ = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "PATH": os.pathsep.join((str(commands), os.environ["PATH"])),
        "BROWSER": "true",
    }
    has_vm = shutil.which("qemu-system-x86_64") is not None
    for command in readme_commands():
        words = command if has_vm else [word.replace("demo-vm", "demo-shell") for word in command]
        if words[0] == "kubectl" and shutil.which("kubectl") is None:
            words = ["kubectl-console", *words[2:]]
        with subprocess.Popen(
            words,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            if words[:2] == ["twisted-exec", "web"]:
                assert process.stdout is not None
                shown = ""
                while "http://127.0.0.1:" not in shown and (line := process.stdout.readline()):
                    shown += line
                process.send_signal(signal.SIGINT)
                process.wait(START_SECONDS)
                assert "http://127.0.0.1:" in shown, (how, words, shown)
            else:
                shown, _ = process.communicate("\r", timeout=START_SECONDS)
                assert process.returncode == 0 and shown.strip(), (how, words, shown)
        print(f"{how}: {' '.join(words)}", flush=True)


def check_uninstalled(environment: Path) -> None:
    """Check that pip removes what it has installed, and nothing else."""
    (site_packages,) = (environment / "lib").glob("python*/site-packages")
    python = environment / "bin" / "python"
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


def main() -> None:
    # Children of a background job would ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        direct, copy = root / "direct", copied(root / "other", OLD)
        with_umask = ("sh", "-c", 'umask 077; exec "$@"', "sh")
        together(
            partial(run, *BUILD, "--outdir", root / "dist", copied(root / "checkout")),
            partial(
                run,
                *(*with_umask, *BUILD, "--outdir", direct, "--sdist", "--wheel", copy),
                # git must not write into the checkout, where others could not read it.
                GIT_OPTIONAL_LOCKS="0",
            ),
        )
        (sdist,) = (root / "dist").glob("*.tar.gz")
        (wheel,) = (root / "dist").glob("*.whl")
        check_sdist(sdist)
        check_same(sdist, direct / sdist.name)
        check_same(wheel, direct / wheel.name)
        check_vendored(contents(wheel))
        check_bill(contents(wheel))
        run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
        version = wheel.name.split("-")[1]
        with index_of(wheel, root / "index") as index:
            ways, _, _ = together(
                partial(installed, index, version, root),
                partial(check_without_npm, sdist, wheel, root),
                partial(check_without_registry, sdist, wheel, root),
            )
        pip = ways["pip"]
        offers = run(pip / "twistd", "--help")
        missing = [name for name in PROGRAMS if name not in offers]
        assert not missing, f"twistd does not offer {missing}"
        with standalone(pip / "twistd", root / "run") as kubeconfig:
            for how, directory in ways.items():
                for command in COMMANDS:
                    run(directory / command, "--help")
                check_version(run(directory / "twisted-exec", "--version"), wheel)
                check_readme(how, directory, kubeconfig)
        check_uninstalled(root / "env")
    print(f"{sdist.name} and {wheel.name} agree; the wheel carries the plugins, uninstalls cleanly")


if __name__ == "__main__":
    main()
