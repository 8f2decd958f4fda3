"""Runs the Python of the READMEs and of the guides as it stands there."""

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path

import aiohttp
import httpx
import pytest

from barograph import AdaptiveTimeout

ROOT = Path(__file__).parents[3]

LIMIT_S = 60
"""Time limit of one block."""

BLOCK = re.compile(r"^```(py[^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
"""A block of Python: what follows the opening fence, and the lines."""


def blocks(page):
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def runnable(page):
    return [lines for mark, lines in blocks(page) if mark == "python"]


FOLDERS = ("*.md", "docs/**/*.md", "crates/*/README.md", "bindings/*/README.md")
PAGES = sorted(str(page.relative_to(ROOT)) for folder in FOLDERS for page in ROOT.glob(folder) if blocks(page))
PROGRAMS = runnable("bindings/python/README.md")


def test_each_python_block_is_run_or_marked():
    assert {"README.md", "bindings/python/README.md", "docs/guide/timeouts-python.md"} <= set(PAGES)
    marks = {mark for page in PAGES for mark, _ in blocks(page)}
    assert marks <= {"python", "python no-test"}


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page, server, station):
    for program in filter(is_program, runnable(page)):
        done = run(program, server.url)
        assert done.returncode == 0 and done.stdout, done.stderr
    fragments = [lines for lines in runnable(page) if not is_program(lines)]
    asyncio.run(run_fragments(fragments, server, station))


def test_the_asyncio_program_has_ten_lines_and_prints_each_answer(server):
    program = PROGRAMS[0]
    assert is_program(program) and program.count("\n") == 10
    done = run(program, server.url)
    lines = done.stdout.splitlines()
    assert len(lines) == len(server.requests) == 20
    assert all(line.startswith("200 Decision(timeout=") for line in lines)
    assert timeout_in(lines[-1]) < 45.0


def test_the_program_of_the_whole_project_prints_each_answer_and_names_its_extra(server):
    done = run(runnable("README.md")[0], server.url)
    assert len(done.stdout.splitlines()) == 20, done.stderr
    assert "pip install './bindings/python[httpx]'" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_forecasting_program_prints_a_forecast():
    program = next(program for program in PROGRAMS if "Forecaster()" in program)
    done = run(program)
    assert done.stdout.startswith("Forecast(value="), done.stderr


def test_each_module_used_in_the_readme_is_imported():
    used = re.findall(r"barograph\.(httpx|aiohttp|station)\.", "".join(PROGRAMS))
    assert set(used) == {"httpx", "aiohttp", "station"}
    for program in PROGRAMS:
        for module in set(re.findall(r"barograph\.(httpx|aiohttp|station)\.", program)):
            assert re.search(rf"^import .*barograph\.{module}\b", program, re.MULTILINE), module


def is_program(lines):
    """Whether a block is a whole program. The others continue each other, and may await."""
    return "asyncio.run(" in lines


def run(program, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments], capture_output=True, text=True, timeout=LIMIT_S
    )


async def run_fragments(fragments, server, station):
    """Runs the blocks one after the other, with the names that the pages take for granted."""
    async with httpx.AsyncClient(timeout=None) as client:
        names = {"client": client, "link": AdaptiveTimeout(limit=60), "url": server.url}
        for fragment in fragments:
            for _ in range(20):
                # The timeout becomes longer than any pause of a busy computer.
                names["link"].answered(1.0)
            fragment = fragment.replace("http://127.0.0.1:10132", station.url)
            code = compile(fragment, "<block>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = eval(code, names)
            if inspect.isawaitable(running):
                await asyncio.wait_for(running, LIMIT_S)
            if isinstance(session := names.get("session"), aiohttp.ClientSession):
                await session.close()


def timeout_in(line):
    return float(re.search(r"timeout=([0-9.]+)", line)[1])
