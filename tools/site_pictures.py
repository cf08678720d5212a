"""Pictures of every page of the built site in a real browser, and what is broken on them.

    python tools/site_pictures.py docs/_build/html pictures            # needs Chromium and Pillow
    python tools/site_pictures.py docs/_build/html pictures --only guide

Every page is opened at desktop and phone width, in light and dark. Sheets of several pages each are for looking at; the
faults that a program can see are printed, and their number decides the exit status: pages wider than the screen, images
that do not load, formulas that were not set, text that can hardly be told from its ground, scripts that fail.
"""

from __future__ import annotations

import argparse
import base64
import io
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

WIDTHS = {"desktop": 1280, "phone": 390}
COLOURS = ("light", "dark")
TALLEST = 6000  # of a picture, in pixels of the page
FAULTS = """(() => {
  const wide = document.documentElement.clientWidth, faults = [];
  const scrolls = e => { for (let p = e.parentElement; p && p.tagName !== 'ARTICLE'; p = p.parentElement)
    if (['auto', 'scroll'].includes(getComputedStyle(p).overflowX)) return true; return false; };
  const beyond = [...document.querySelectorAll('article *')].filter(
    e => e.getBoundingClientRect().right > wide + 1 && e.getClientRects().length && !scrolls(e) &&
      !e.closest('mjx-assistive-mml'));  // that is for screen readers and never seen
  if (beyond.length) faults.push('sticks out: ' + beyond.slice(0, 2).map(
    e => `${e.tagName.toLowerCase()}.${e.className} ${e.textContent.trim().slice(0, 50)}`).join(' | '));
  if (document.documentElement.scrollWidth > wide + 1)
    faults.push(`wider than the screen by ${document.documentElement.scrollWidth - wide}`);
  for (const i of document.images)
    if (i.complete && !i.naturalWidth) faults.push('image does not load: ' + i.src);
  for (const m of document.querySelectorAll('.math'))
    if (!m.querySelector('mjx-container')) faults.push('formula is not set: ' + m.textContent.slice(0, 40));
  const numbers = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const known = new Map();  // of every element, asked for once
  const ground = e => { if (!e) return [255, 255, 255];
    if (!known.has(e)) { const c = numbers(getComputedStyle(e).backgroundColor);
      known.set(e, c.length === 3 || c[3] > 0.5 ? c : ground(e.parentElement)); }
    return known.get(e); };
  const faint = [...document.querySelectorAll('article :not(pre *), .bd-sidebar *')].filter(e => {
    if (!e.getClientRects().length || e.closest('svg, mjx-container, button, .headerlink')) return false;
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) return false;
    const [a, b] = [light(numbers(getComputedStyle(e).color)), light(ground(e))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 2.5; });
  if (faint.length) faults.push('hardly readable: ' + faint.slice(0, 2).map(
    e => `${e.tagName.toLowerCase()}.${e.className} ${e.textContent.trim().slice(0, 40)}`).join(' | '));
  if (document.querySelector('mjx-merror')) faults.push('formula with an error');
  if ((document.querySelector('article') || document.body).innerText.trim().length < 40) faults.push('empty page');
  return faults;
})()"""
SETTLED = """new Promise(done => {
  for (const i of document.images) i.loading = 'eager';
  const wait = () => (window.MathJax && MathJax.startup && MathJax.startup.promise) || Promise.resolve();
  const images = Promise.all([...document.images].map(i => i.decode().catch(() => 0)));
  Promise.all([wait(), images, document.fonts.ready]).then(() => setTimeout(() => done(true), 50));
})"""


class Browser:
    """Chromium without a window, spoken to over two pipes."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        options = [
            "--headless=new",
            "--no-sandbox",
            "--hide-scrollbars",
            "--disable-gpu",
            "--remote-debugging-pipe",
        ]
        options += [f"--user-data-dir={self._profile.name}", "--allow-file-access-from-files", "about:blank"]

        def on_three_and_four() -> None:
            os.dup2(to_read, 103), os.dup2(to_write, 104)
            os.dup2(103, 3), os.dup2(104, 4)

        self._process = subprocess.Popen(
            [program, *options], preexec_fn=on_three_and_four, close_fds=False, stderr=subprocess.DEVNULL
        )
        self._numbers = itertools.count(1)
        self._rest = b""
        self.failures: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = None
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> Any:
        """Answer of the browser to one command; failing scripts are noted on the way."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        for answer in self._messages():
            if answer.get("method") == "Runtime.exceptionThrown":
                self.failures.append("script fails: " + answer["params"]["exceptionDetails"]["text"])
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def _messages(self) -> Iterator[Any]:
        while True:
            while b"\0" not in self._rest:
                part = os.read(self._read, 1 << 20)
                if not part:
                    raise RuntimeError("the browser has ended")
                self._rest += part
            one, _, self._rest = self._rest.partition(b"\0")
            yield json.loads(one)

    def value(self, script: str) -> Any:
        """What a script in the page returns, waiting for promises."""
        found = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        return found["result"].get("value")

    def open(self, page: Path, width: int, colour: str) -> None:
        """Load a page at a width and in a colour scheme, until formulas and images are there."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": colour}])
        self.failures.clear()
        self.ask("Page.navigate", url=page.resolve().as_uri())
        for _ in range(200):
            if self.value("document.readyState === 'complete' && location.protocol === 'file:'"):
                break
            self.value("new Promise(done => setTimeout(done, 25))")
        self.value(SETTLED)

    def picture(self, width: int) -> Image.Image:
        """The whole page."""
        height = min(TALLEST, int(self.value("document.documentElement.scrollHeight")))
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return Image.open(io.BytesIO(base64.b64decode(found["data"]))).convert("RGB")

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait()
        self._profile.cleanup()


def sheets(pictures: list[tuple[str, Image.Image]], width: int, folder: Path, name: str) -> None:
    """Pages side by side, at most 1400 pixels of each, several to a file."""
    scale = 0.5 if width > 600 else 0.75
    columns = 3 if width > 600 else 6
    for start in range(0, len(pictures), columns):
        group = pictures[start : start + columns]
        small = [
            p.resize((int(p.width * scale), int(p.height * scale)), Image.Resampling.LANCZOS)
            for _, p in group
        ]
        tall = min(1400, max(p.height for p in small))
        sheet = Image.new("RGB", (sum(p.width + 8 for p in small), tall + 16), "magenta")
        x = 0
        for (title, _), picture in zip(group, small):
            sheet.paste(picture.crop((0, 0, picture.width, tall)), (x, 16))
            ImageDraw.Draw(sheet).text((x + 2, 2), title, "black")
            x += picture.width + 8
        sheet.save(folder / f"{name}-{start // columns:02d}.png")


def main() -> int:
    """Open, look, count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("site", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="pages whose path contains this")
    parser.add_argument("--width", choices=tuple(WIDTHS), help="only this one")
    parser.add_argument(
        "--reference", action="store_true", help="also the pages of single objects, which are many"
    )
    parser.add_argument(
        "--browser", default=shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    )
    arguments = parser.parse_args()
    pages = [page for page in sorted(arguments.site.rglob("*.html")) if arguments.only in str(page)]
    left_out = {"_static", "_modules", "_sources", *(() if arguments.reference else ("generated",))}
    pages = [page for page in pages if not left_out & set(page.relative_to(arguments.site).parts)]
    arguments.out.mkdir(parents=True, exist_ok=True)
    browser = Browser(arguments.browser)
    faults = 0
    try:
        wanted = {arguments.width: WIDTHS[arguments.width]} if arguments.width else WIDTHS
        for (kind, width), colour in itertools.product(wanted.items(), COLOURS):
            pictures = []
            for page in pages:
                title = str(page.relative_to(arguments.site))
                browser.open(page, width, colour)
                for fault in [*browser.value(FAULTS), *browser.failures]:
                    faults += 1
                    print(f"{title} ({kind}, {colour}): {fault}", flush=True)
                pictures.append((title, browser.picture(width)))
            sheets(pictures, width, arguments.out, f"{kind}-{colour}")
    finally:
        browser.close()
    print(f"{len(pages)} pages, {faults} faults")
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main())
