"""Plain text from documentation pages (HTML)."""

import re
from html.parser import HTMLParser

BLOCK = {
    "p", "div", "section", "article", "h1", "h2", "h3", "h4", "h5", "h6", "li", "ul", "ol", "dl", "dt", "dd",
    "pre", "table", "tr", "blockquote", "details", "summary", "br", "hr", "title",
}
SKIP = {"script", "style", "nav", "noscript", "svg", "head", "footer", "button", "form"}
HEADING = {"h1": "# ", "h2": "## ", "h3": "### ", "h4": "#### ", "h5": "##### ", "h6": "###### "}


class _Text(HTMLParser):
    """Collects text; block elements break lines, `pre` keeps its spaces."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.out, self.skip, self.pre = [], 0, 0

    def handle_starttag(self, tag, attrs):
        if tag in SKIP:
            self.skip += 1
        elif tag == "pre":
            self.pre += 1
            self.out.append("\n\n")
        elif tag in BLOCK:
            self.out.append("\n\n" if tag in ("p", "h1", "h2", "h3", "pre", "table") else "\n")
            self.out.append(HEADING.get(tag, "- " if tag == "li" else ""))
        elif tag in ("td", "th"):
            self.out.append(" ")

    def handle_endtag(self, tag):
        if tag in SKIP:
            self.skip = max(0, self.skip - 1)
        elif tag == "pre":
            self.pre = max(0, self.pre - 1)
            self.out.append("\n\n")
        elif tag in BLOCK:
            self.out.append("\n")

    def handle_data(self, data):
        if not self.skip:
            self.out.append(data if self.pre else re.sub(r"\s+", " ", data))


def html_to_text(html: str) -> str:
    """Text of one page: headings as `#`, list items as `-`, code kept as it stands."""
    parser = _Text()
    parser.feed(html)
    text = "".join(parser.out)
    text = re.sub(r"[ \t]+\n", "\n", text)
    text = re.sub(r"\n[ ](?=\S)", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
