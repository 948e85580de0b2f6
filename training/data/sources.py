"""Where each document comes from: one generator a package, yielding `(domain, source, name, text)`.

Domains: `code`, `docs` (reference pages), `prose` (books, tutorials, articles, dictionary), `maths`.
"""

import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random

from .htmltext import html_to_text

MAX_CODE = 150_000  # larger source files are generated tables
RUSTDOC_CUT = re.compile(r'<h2 id="(?:synthetic|blanket)-implementations".*', re.S)
RUSTDOC_BODY = re.compile(r'<section id="main-content" class="content">(.*)</section>', re.S)
SQLITE_BODY = re.compile(r"</form>\s*</div>(.*)", re.S)
PG_HEADER = re.compile(r'<div[^>]*class="nav(?:header|footer)".*?</table>(?:<hr[^>]*>)?</div>', re.S)


def read(path: Path) -> str | None:
    """UTF-8 text of a file, or None when it is not text."""
    try:
        text = path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError):
        return None
    return None if "\0" in text else text.replace("\r\n", "\n")


def generated(text: str) -> bool:
    """True for machine-written tables: very long lines or mostly digits."""
    lines = text.split("\n")
    digits = sum(c.isdigit() for c in text[:20000])
    return max(map(len, lines)) > 2000 or digits > 0.25 * min(len(text), 20000) or "zipdata" in text[:2000]


def code_files(root: Path, source: str, pattern: str, reject: str):
    """Source files below `root` whose relative path does not match `reject`."""
    bad = re.compile(reject)
    for path in sorted(root.rglob(pattern)):
        name = str(path.relative_to(root))
        if bad.search(name) or not path.is_file() or path.is_symlink():
            continue
        text = read(path)
        if text and 200 < len(text) <= MAX_CODE and not generated(text):
            yield "code", source, name, text


def go(x: Path):
    root = x / "golang-1.19-src/usr/share/go-1.19"
    yield from code_files(root, "golang-1.19-src", "*.go", r"tzdata|/tables|zerrors_|zsysnum_|opGen|/unicode/norm/")
    for path in sorted(root.rglob("*.md")) + sorted((root / "doc").rglob("*.html") if (root / "doc").exists() else []):
        text = read(path)
        if text and len(text) > 500:
            yield "docs", "golang-1.19-src", path.name, html_to_text(text) if path.suffix == ".html" else text


def rust(x: Path):
    root = x / "rust-src/usr/src/rustc-1.63.0"
    yield from code_files(root, "rust-src", "*.rs", r"stdarch/crates/core_arch/src/(x86|arm|aarch64)|unicode_data|core_arch/.*generated")
    yield from code_files(root, "rust-src", "*.py", r"^debian/")
    for path in sorted(root.rglob("*.md")):
        name = str(path.relative_to(root))
        text = read(path)
        if not text or len(text) < 500:
            continue
        book = re.search(r"src/doc/(book|nomicon|edition-guide|embedded-book|rust-by-example|rustc-dev-guide)/", name)
        yield "prose" if book else "docs", "rust-src", name, text


def _rustdoc_page(path: Path) -> str | None:
    html = read(path)
    if not html:
        return None
    html = RUSTDOC_CUT.sub("", html)
    body = RUSTDOC_BODY.search(html)
    html = body.group(1) if body else html
    html = re.sub(r'<a class="(?:srclink|anchor|src rightside)"[^>]*>.*?</a>', "", html, flags=re.S)
    text = html_to_text(html)
    return re.sub(r"\n(?:source|\[−\]|\[-\]|·)(?=\n)", "", text)


def _page(path: Path) -> str | None:
    html = read(path)
    if not html:
        return None
    html = PG_HEADER.sub("", html)
    body = SQLITE_BODY.search(html)
    return html_to_text(body.group(1) if body and "sqlite" in html[:3000].lower() else html)


def _parallel(function, paths):
    with ProcessPoolExecutor() as pool:
        yield from zip(paths, pool.map(function, paths, chunksize=32), strict=True)


def rust_doc(x: Path):
    root = x / "rust-doc/usr/share/doc/rust-doc/html"
    paths = [
        p
        for top in ("std", "core", "alloc", "proc_macro", "unstable-book", "rustc", "rustdoc", "reference")
        for p in sorted((root / top).rglob("*.html"))
        if "arch" not in p.relative_to(root).parts[1:2] and "core_arch" not in p.parts
        and p.name not in ("print.html", "all.html") and 2000 < p.stat().st_size < 1_500_000
    ]
    for path, text in _parallel(_rustdoc_page, paths):
        if text and len(text) > 400:
            yield "docs", "rust-doc", str(path.relative_to(root)), text


def python_doc(x: Path):
    root = x / "python3.11-doc/usr/share/doc/python3.11/html/_sources"
    for path in sorted(root.rglob("*.txt")):
        name = str(path.relative_to(root))
        text = read(path)
        if text and len(text) > 500:
            prose = name.split("/")[0] in ("tutorial", "howto", "faq", "whatsnew", "using", "extending")
            yield "prose" if prose else "docs", "python3.11-doc", name, text


def sqlite_doc(x: Path):
    root = x / "sqlite3-doc/usr/share/doc/sqlite3"
    paths = [p for p in sorted(root.rglob("*.html")) if p.stat().st_size < 600_000]
    for path, text in _parallel(_page, paths):
        name = str(path.relative_to(root))
        if text and len(text) > 500:
            docs = name.startswith(("c3ref/", "session/", "releaselog/", "syntax/", "lang", "pragma", "changes"))
            yield "docs" if docs else "prose", "sqlite3-doc", name, text


def postgres_doc(x: Path):
    root = next((x / "postgresql-doc-15/usr/share/doc").glob("postgresql-doc-15*")) / "html"
    paths = sorted(root.rglob("*.html"))
    for path, text in _parallel(_page, paths):
        if text and len(text) > 500:
            docs = path.name.startswith(("sql-", "app-", "catalog-", "view-", "libpq-", "spi-", "ecpg-", "infoschema-", "release-"))
            yield "docs" if docs else "prose", "postgresql-doc-15", path.name, text


KINDS = {"n": "noun", "v": "verb", "a": "adjective", "s": "adjective", "r": "adverb"}


def synsets(x: Path, part: str):
    """(words, kind, gloss) of one data file of WordNet."""
    for line in (x / f"wordnet-base/usr/share/wordnet/data.{part}").read_text(encoding="utf-8").splitlines():
        if line.startswith("  ") or " | " not in line:
            continue
        head, gloss = line.split(" | ", 1)
        fields = head.split(" ")
        words = [fields[4 + 2 * i].replace("_", " ").split("(")[0] for i in range(int(fields[3], 16))]
        yield words, KINDS[fields[2]], gloss.strip()


def wordnet(x: Path, per_doc: int = 12):
    """Dictionary pages: a dozen neighbouring synsets each, as running text."""
    for part in ("noun", "verb", "adj", "adv"):
        entries = list(synsets(x, part))
        for i in range(0, len(entries), per_doc):
            page = [f"{', '.join(words)} ({kind}): {gloss}." for words, kind, gloss in entries[i : i + per_doc]]
            yield "prose", "wordnet-base", f"{part}/{entries[i][0][0]}", "\n".join(page) + "\n"


def wordnet_questions(x: Path, seed: int, share: float = 0.15):
    """Questions and answers about a share of the synsets, in runs of neighbours (their pages leave the held-out set)."""
    rng = Random(seed)
    for part in ("noun", "verb", "adj", "adv"):
        entries = list(synsets(x, part))
        for i in range(0, len(entries), 48):
            if rng.random() > 2 * share:
                continue
            for words, kind, gloss in entries[i : i + 48]:
                if rng.random() < 0.5:
                    yield "prose", "templates", f"wordnet/{words[0]}", _question(rng, words, kind, gloss)


def _question(rng: Random, words: list[str], kind: str, gloss: str) -> str:
    meaning, *examples = [g.strip() for g in gloss.split("; ")]
    word = words[0]
    ask = rng.choice((
        f"What does the {kind} '{word}' mean?", f"Explain the meaning of the word '{word}'.", f"Define '{word}' in one sentence.",
        f"What is meant by '{word}'?", f"Can you describe what '{word}' means? Please be concise.",
    ))
    lines = [ask, "", rng.choice((f"The {kind} '{word}' means: {meaning}.", f"'{word}' is used as {'an' if kind[0] == 'a' else 'a'} {kind}. It means {meaning}."))]
    if len(words) > 1:
        lines.append(f"Other words with the same meaning are {', '.join(words[1:])}.")
    quoted = [e.strip('"') for e in examples if e.startswith('"')]
    if quoted:
        lines.append(f'For example: "{quoted[0]}".')
    return "\n".join(lines) + "\n"


def reasoning_gym_source(p: Path):
    """The package's own Python files. Its data files are left out: their upstream licences are not stated."""
    yield from code_files(p / "reasoning_gym", "reasoning-gym", "*.py", r"^data/|gsm_symbolic/generators|wordle")
