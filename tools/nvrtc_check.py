#!/usr/bin/env python3
"""Compiles every kernel for sm_80, sm_90 and sm_100 with NVRTC, on a machine without a GPU.

Kernels of packed layers are compiled for sm_86, sm_89 and sm_120 too.

    tools/nvrtc_check.py [--full]

For sm_90, whose cards are measured, as the library compiles; for the others to machine code too, but with little optimisation, which
finds errors of the language, of instructions and of limits as well, in a fifth of the time, and says nothing of registers. --full compiles all as the library does.

NVRTC comes from PyPI into a virtual environment under target/. If it cannot be had, nothing was checked: the script
says so and ends with 77.
"""

import concurrent.futures
import ctypes
import glob
import json
import os
import re
import subprocess
import sys
import venv

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, "target", "nvrtc")
PACKAGE = "nvidia-cuda-nvrtc==13.0.88"
ARCHITECTURES = ["sm_80", "sm_90", "sm_100"]
MEASURED = "sm_90"
# Cards whose SMs have less shared memory: the programs of packed layers alone.
OTHERS = ["sm_86", "sm_89", "sm_120"]
LAYERS = re.compile(r"(portable-\d|tight|bf16|bf16-frozen|external|kv|decode|linear_data)\.cu")


def find_library():
    """The library in the virtual environment, which is made at first."""
    pattern = os.path.join(VENV, "lib", "python3*", "site-packages", "nvidia", "**", "lib", "libnvrtc.so.*")
    found = [path for path in glob.glob(pattern, recursive=True) if ".alt" not in path]
    if found:
        return found[0]
    try:
        venv.create(VENV, with_pip=True)
        pip = [os.path.join(VENV, "bin", "python"), "-m", "pip", "install", "--quiet", PACKAGE]
        subprocess.run(pip, check=True, timeout=600, stdout=sys.stderr)
    except (OSError, subprocess.SubprocessError) as error:
        print(error, file=sys.stderr)
    found = [path for path in glob.glob(pattern, recursive=True) if ".alt" not in path]
    return found[0] if found else None


def load(path):
    # The compiler looks for its builtins by name: with them loaded it finds them.
    for builtins in glob.glob(os.path.join(os.path.dirname(path), "libnvrtc-builtins.so.*")):
        ctypes.CDLL(builtins, mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(path)


def strings(texts):
    return (ctypes.c_char_p * len(texts))(*[text.encode() for text in texts])


def compile_program(library, job, headers):
    """Compiles a program; returns success and the compiler's log."""
    nvrtc = load(library)
    program = ctypes.c_void_p()
    names, texts = strings([h["name"] for h in headers]), strings([h["text"] for h in headers])
    source, name = job["text"].encode(), job["program"].encode()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, name, len(headers), texts, names)
    options = strings(job["options"] + ["--ptxas-options=-v" if job["full"] else "--Ofast-compile=max"])
    result = nvrtc.nvrtcCompileProgram(program, len(options), options)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return result == 0, log.value.decode()


def compile_all(library, work):
    """The answers in the order of the jobs, a process for each core."""
    jobs = work["jobs"]
    with concurrent.futures.ProcessPoolExecutor() as pool:
        yield from pool.map(compile_program, [library] * len(jobs), jobs, [work["headers"]] * len(jobs))


def example():
    """Builds the program that lists the sources, with the options of `cargo test --workspace`."""
    build = ["cargo", "build", "--quiet", "--workspace", "--profile", "test", "--example", "sources", "--message-format", "json"]
    said = subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    messages = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return next(message["executable"] for message in messages if message.get("executable"))


def main():
    library = find_library()
    if library is None:
        print(f"NOT RUN: {PACKAGE} could not be had from PyPI, so NO KERNEL WAS COMPILED")
        return 77
    work = json.loads(subprocess.run([example(), *ARCHITECTURES, *OTHERS], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    work["jobs"] = [job for job in work["jobs"] if job["architecture"] in ARCHITECTURES or LAYERS.fullmatch(job["program"])]
    # The kernel of examples/cpp is built by a user's nvcc.
    with open(os.path.join(ROOT, "examples", "cpp", "plate_kernel.cuh")) as file:
        plate = file.read()
    options = {job["architecture"]: job["options"] for job in work["jobs"]}
    work["jobs"] += [{"program": "plate", "text": plate, "architecture": name, "options": options[name]} for name in ARCHITECTURES]
    failed = 0
    print(f"{'program':<14} {'for':<7} {'kernels':>7} {'registers':>9} {'spilled bytes':>13}")
    for job in work["jobs"]:
        job["full"] = "--full" in sys.argv[1:] or job["architecture"] == MEASURED
    for job, (good, log) in zip(work["jobs"], compile_all(library, work)):
        if not good:
            failed += 1
            print(f"{job['program']:<14} {job['architecture']:<7} DOES NOT COMPILE\n{log}")
            continue
        if not job["full"]:
            print(f"{job['program']:<14} {job['architecture']:<7} {'-':>7} {'-':>9} {'-':>13}")
            continue
        registers = [int(n) for n in re.findall(r"Used (\d+) registers", log)]
        spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill stores", log))
        most = max(registers, default=0)
        print(f"{job['program']:<14} {job['architecture']:<7} {len(registers):>7} {most:>9} {spills:>13}")
    print(f"{len(work['jobs']) - failed} of {len(work['jobs'])} programs compiled")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
