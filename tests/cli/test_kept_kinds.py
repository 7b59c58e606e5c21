"""What `info` and `doctor` say of a topic that keeps the last message of each kind."""

from __future__ import annotations

import json

import pytest

import ringmain as rm
from ringmain._cli.topic_checks import diagnose


@pytest.mark.parametrize(("kinds", "kept", "missed"), [(8, 4, 0), (3, 3, 1)])
def test_info_counts_the_kinds_and_doctor_warns_if_they_are_too_many(ringmain, kinds, kept, missed):
    with rm.Publisher("prices", capacity=4096, keep_last_per_kind=kinds) as pub:
        for kind in "ABCD":
            pub.send(kind.encode(), kind)
        pub.send_many([b"x"] * 500, "A")
        out = ringmain("info", "prices").out
        assert f"kept      the last message of each kind; {kept} of {kinds} kinds" in out
        assert (f"{missed} messages of others not kept" in out) == bool(missed)
        (told,) = json.loads(ringmain("list", "--json").out)
        assert (told["kept_kinds"], told["max_kept_kinds"], told["not_kept"]) == (kept, kinds, missed)
        found = [finding for finding in diagnose(rm.info("prices"), rm.info("prices"), 1) if finding.what == "kinds"]
        assert [finding.state for finding in found] == ["bad"] * bool(missed)


def test_other_topics_have_no_such_line(ringmain):
    with rm.Publisher("imu"):
        assert "kept" not in ringmain("info", "imu").out
