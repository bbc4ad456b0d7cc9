"""Commands as the documentation writes them, and the concrete command lines that they stand for.

    unilab-eval RUN_DIR [--checkpoint C] [--physics {fast,reference}]
        -> unilab-eval RUN_DIR
        -> unilab-eval RUN_DIR --checkpoint C
        -> unilab-eval RUN_DIR --physics fast
        -> unilab-eval RUN_DIR --physics reference

`[...]` may be left out, `{a,b}` and `a | b` are choices. Each alternative appears in at least one
command line; placeholders in capitals are filled in by whoever runs it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

STARTS = ("unilab-", "make ", "uv run train", "train --", "python -m unilab")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")
_CHOICE = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Written:
    """One command in a document."""

    path: str
    text: str


def find_commands(root: Path) -> list[Written]:
    """Every command in a fenced block or between backticks, in the order of the documents."""
    pages = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
    found: dict[tuple[str, str], Written] = {}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        name = page.relative_to(root).as_posix()
        lines = [line for _, block in _FENCE.findall(text) for line in joined(block)]
        spans = _SPAN.findall(_FENCE.sub("", text))
        for candidate in (*lines, *spans):
            command = bare(candidate)
            # A tool's name alone is a mention; `unilab-launch` without arguments prints its help.
            if command.startswith(STARTS) and " " in command:
                found.setdefault((name, command), Written(path=name, text=command))
    return list(found.values())


def joined(block: str) -> list[str]:
    """Lines of a block, continued ones in one piece."""
    return block.replace("\\\n", " ").splitlines()


def bare(line: str) -> str:
    """Without prompt, comment, the explanation after two blanks, and the folder of the tool."""
    text = re.sub(r"\s+#\s.*$", "", line.strip().removeprefix("$ "))
    text = re.split(r"\s{3,}", text)[0]
    return re.sub(r"^\.venv/bin/", "", text).strip()


def expand(text: str) -> list[str]:
    """Concrete command lines of a synopsis; see the module docstring."""
    optional = _OPTIONAL.search(text)
    if optional is not None:
        before, inner, after = text[: optional.start()], optional[1], text[optional.end() :]
        without = _OPTIONAL.sub("", after)
        used = [
            line
            for choice in inner.split(" | ")
            for line in expand(f"{before}{choice.removesuffix('...').strip()}{without}")
        ]
        return unique([*expand(f"{before}{after}"), *used])
    choice = _CHOICE.search(text)
    if choice is not None:
        before, after = text[: choice.start()], text[choice.end() :]
        return unique(
            [line for word in choice[1].split(",") for line in expand(f"{before}{word}{after}")]
        )
    return unique([" ".join(line.split()) for line in alternatives(text)])


def alternatives(text: str) -> list[str]:
    """`tool a X | b Y` is `tool a X` and `tool b Y`; a leading flag belongs to the last of them."""
    first, *others = text.split(" | ")
    if not others:
        return [text]
    words = first.split()
    # What a choice replaces is as long as it is itself: `--dry-run | --plain`, `stop JOB | list`.
    kept = words[:-1] if words[-1].startswith("--") else words[:1]
    return [first, *(f"{' '.join(kept)} {other}" for other in others)]


def unique(lines: list[str]) -> list[str]:
    """The same without repetitions."""
    return list(dict.fromkeys(lines))
