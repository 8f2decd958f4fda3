"""The programs in the READMEs run as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
OF_ALL = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")


def run(program, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments], capture_output=True, text=True, timeout=60
    )


def test_the_asyncio_program_has_ten_lines_and_runs(server):
    program = PROGRAMS[0]
    assert "asyncio.run" in program and program.count("\n") == 10
    server.stalls = set()
    done = run(program, server.url)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(server.requests) == 20
    assert all(line.startswith("200 Decision(timeout=") for line in lines)
    assert timeout_in(lines[-1]) < 45.0


def test_the_forecasting_program_runs():
    program = next(program for program in PROGRAMS if "Forecaster()" in program)
    done = run(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Forecast(value=")


def test_the_python_program_of_the_project_readme_runs(server):
    (program,) = re.findall(r"```python\n(.*?)```", OF_ALL, re.DOTALL)
    server.stalls = set()
    done = run(program, server.url)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 20
    assert "pip install './bindings/python[httpx]'" in OF_ALL


def test_each_module_used_in_the_readme_is_imported():
    assert set(re.findall(r"barograph\.(httpx|aiohttp|station)\.", README)) == {"httpx", "aiohttp", "station"}
    for program in PROGRAMS:
        for module in set(re.findall(r"barograph\.(httpx|aiohttp|station)\.", program)):
            assert re.search(rf"^import .*barograph\.{module}\b", program, re.MULTILINE), module


def timeout_in(line):
    return float(re.search(r"timeout=([0-9.]+)", line)[1])
