"""What Spark's own pages show of a pipeline, asked for as they ask for it: by the REST API on loopback."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.recordings import Imu, imu, rows, schema_of, writer

PROGRAM = """
import json, sys, time, urllib.request
import ringmain.spark
from ringmain.pipeline import run

spark = ringmain.spark.session(master="local[2]", brief=True, **{"spark.ui.enabled": True, "spark.ui.port": 0})
run(*sys.argv[1:], spark=spark, max_bytes_per_batch="4KiB")
context = spark.sparkContext

def ask(what):
    with urllib.request.urlopen(f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/{what}") as answer:
        return json.load(answer)

def done():
    return [one for one in ask("sql?details=false") if " is done: " in one["description"]]

while len(done()) < 3:  # the pages follow what happens
    time.sleep(0.05)
print(json.dumps({"jobs": ask("jobs"), "done": done()}))
spark.stop()
"""


@pytest.mark.spark
def test_sparks_pages_show_each_batch(tmp_path: Path) -> None:
    made = writer(tmp_path / "recs")
    made.declare("imu", epoch=1, schema=schema_of(Imu))
    for part in range(3):
        made.append("imu", 1, rows(part * 50, 50, encode=lambda n: b"\xc1" if n == 3 else imu(n)))
        made.flush()
    made.close()
    asked = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "recs"), str(tmp_path / "lake")],
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    found: dict[str, list[dict[str, Any]]] = json.loads(asked.stdout.splitlines()[-1])
    batches = sorted((one["description"] for one in found["done"]), key=lambda text: int(text.split()[1]))
    counts = [
        tuple(map(int, re.findall(r"(\d+) (?:rows in|out|quarantined|duplicates|files|bytes)", t))) for t in batches
    ]
    assert sum(rows_in for rows_in, *_ in counts) == 150
    assert sum(out for _, out, *_ in counts) == 149
    assert sum(quarantined for _, _, quarantined, *_ in counts) == 1
    assert all(files >= 1 and size > 100 for *_, files, size in counts)
    groups = {job["jobGroup"]: job["description"] for job in found["jobs"]}
    for number in range(len(batches)):
        assert re.fullmatch(rf"batch {number}: \d+ rows of 1 topics, \d+ bytes", groups[f"ringmain batch {number}"])
