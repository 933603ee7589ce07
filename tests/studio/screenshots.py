"""`make studio-pictures`: each page of the studio on a wide screen and on a phone, light and dark, for the docs."""

import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from runekeep import Client
from tests.acceptance.processes import processes
from tests.studio.pages import PAGES, ROOT, USER, remember, running_studio

OUT = ROOT / "docs" / "pictures" / "studio"
SIZES = ((1280, 860), (380, 860))
SCALE = 0.6
GAP = 12
QUALITY = 72


def main() -> None:
    OUT.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        processes(Path(folder)) as started,
        Client(started.server().address, user=USER) as client,
    ):
        started.extractor("worker")
        task = remember(client)
        with running_studio(started.address, "--operator") as link, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            views = [
                browser.new_page(color_scheme=scheme, viewport={"width": width, "height": height})
                for width, height in SIZES
                for scheme in ("light", "dark")
            ]
            _save("login", views, f"{link}/login")
            for page in views:
                page.get_by_label("User").fill(USER)
                page.get_by_role("button", name="Log in").click()
                page.get_by_role("heading", name="Overview").wait_for()
            for name, path in PAGES.items():
                _save(name, views, link + path.format(task=task))
            browser.close()


def _save(name: str, views: list[Page], address: str) -> None:
    shots = []
    for page in views:
        page.goto(address)
        page.wait_for_timeout(200)
        shots.append(Image.open(BytesIO(page.screenshot())))
    _beside_each_other(shots).save(OUT / f"{name}.webp", quality=QUALITY, method=6)


def _beside_each_other(shots: list[Image.Image]) -> Image.Image:
    small = [
        shot.resize((round(shot.width * SCALE), round(shot.height * SCALE)), Image.Resampling.LANCZOS) for shot in shots
    ]
    whole = Image.new("RGB", (sum(shot.width + GAP for shot in small) - GAP, small[0].height), "#808890")
    left = 0
    for shot in small:
        whole.paste(shot, (left, 0))
        left += shot.width + GAP
    return whole


if __name__ == "__main__":
    main()
