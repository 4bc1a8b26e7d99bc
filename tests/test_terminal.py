"""Output whose reader goes away."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys, time
from rlmem.terminal import outlive_the_reader
outlive_the_reader()
outlive_the_reader()  # once is enough
print("first", flush=True)
while not os.path.exists("gone"):
    time.sleep(0.01)
for number in range(10_000):
    print(number, flush=number % 2 == 0)
    print(number, file=sys.stderr)
open("ended", "w").close()
"""


def test_a_process_goes_on_when_nobody_reads_it_any_more(tmp_path: Path) -> None:
    """As `python train.py | head -1` has it; nor is anything said at its end."""
    out, into = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=into, stderr=into, cwd=tmp_path
    )
    os.close(into)
    assert os.read(out, 5) == b"first"
    os.close(out)
    (tmp_path / "gone").touch()
    assert process.wait(60) == 0
    assert (tmp_path / "ended").exists()


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    program = PROGRAM.replace('print("first", flush=True)', "open('gone', 'w')")
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", program],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
    assert ended.returncode == 1
    assert "No space left on device" in ended.stderr
