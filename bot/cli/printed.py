"""Prints a page as PDF, by a Chromium that is installed here and by the page's own print stylesheet."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from bot.cli.failures import CommandError, writing

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
WITHIN_SECONDS = 120.0


def as_pdf(page: str, out: Path) -> None:
    """Write the page to `out`. Raise `CommandError` without a browser, or if it wrote nothing."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise CommandError("A PDF needs Chromium or Chrome on PATH. Or use --format html, and print it in any browser.")
    with tempfile.TemporaryDirectory() as folder:
        written, printed = Path(folder) / "report.html", Path(folder) / "report.pdf"
        written.write_text(page, encoding="utf-8")
        # The page is our own and has no script; a sandbox needs rights that containers lack.
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
        command = [browser, *options, "--no-pdf-header-footer", f"--print-to-pdf={printed}", written.as_uri()]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_SECONDS, check=False)  # noqa: S603 - our own arguments
        except subprocess.TimeoutExpired as error:
            raise CommandError(f"{browser} did not print the page within {WITHIN_SECONDS:.0f} s.") from error
        if not printed.is_file():
            raise CommandError(f"{browser} printed nothing: {ended.stderr.strip()[-300:]}")
        with writing(out):
            shutil.copyfile(printed, out)
