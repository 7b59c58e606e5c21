"""Write into the guides what they show of the code: files of the examples, and the table of the backends."""

from __future__ import annotations

import re
from pathlib import Path

from ringmain.backends import _features

ROOT = Path(__file__).parent.parent


def main() -> None:
    for guide in sorted((ROOT / "docs" / "guide").glob("*.md")):
        text = guide.read_text()
        shown = re.sub(
            r"(<!-- file: (\S+) -->\n)(```python\n.*?```\n)?",
            lambda found: f"{found[1]}```python\n{(ROOT / found[2]).read_text()}```\n",
            text,
            flags=re.DOTALL,
        )
        shown = re.sub(
            r"(<!-- table: ringmain.backends._features -->\n).*\Z",
            lambda found: f"{found[1]}\n{_features.as_markdown()}",
            shown,
            flags=re.DOTALL,
        )
        if shown != text:
            guide.write_text(shown)
            print(f"wrote {guide.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
