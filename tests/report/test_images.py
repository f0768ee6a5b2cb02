"""Images: looked up in one folder alone, made small, without what the camera wrote beside them."""

import base64
import io

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from attemper.data.scores import Scores
from attemper.errors import FileError, InputError
from attemper.report import render, summarise
from attemper.report.images import ENDINGS, LARGEST, ImageFolder


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    rng = np.random.default_rng(0)
    for name in ("a.jpg", "b.PNG", "c.tiff"):
        Image.fromarray(rng.integers(256, size=(300, 500, 3), dtype=np.uint8)).save(tmp_path / "images" / name)
    (tmp_path / "images" / "broken.jpg").write_bytes(b"\xff\xd8 no image")
    (tmp_path / "images" / "notes.txt").write_text("not an image")
    (tmp_path / "secret.jpg").write_bytes((tmp_path / "images" / "a.jpg").read_bytes())
    return tmp_path / "images"


def decoded(uri):
    head, _, text = uri.partition(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(text)))


@pytest.mark.parametrize("name", ["a", "a.jpg", "b", "b.PNG", "c"])
def test_images_are_found_by_name_and_made_small(folder, name):
    image = decoded(ImageFolder(folder).data_uri(name))
    assert image.size == (LARGEST, 120)


@pytest.mark.parametrize(
    "name", ["../secret", "../secret.jpg", "/etc/passwd", "images/a", "./a", "", ".", "..", "a\0", "notes", "notes.txt"]
)
def test_no_name_leads_out_of_the_folder(folder, name):
    images = ImageFolder(folder)
    assert name not in images
    assert images.data_uri(name) is None


def test_no_link_leads_out_of_the_folder(folder):
    (folder / "link.jpg").symlink_to(folder.parent / "secret.jpg")
    (folder / "dots.jpg").symlink_to("../secret.jpg")
    (folder / "chain.jpg").symlink_to("link.jpg")
    (folder / "inside.jpg").symlink_to("a.jpg")
    (folder / "loop.jpg").symlink_to("loop.jpg")
    (folder.parent / "other").symlink_to(folder)
    for place in (folder, folder.parent / "other"):  # the folder itself may be a link
        images = ImageFolder(place)
        for name in ("link", "link.jpg", "dots", "chain", "loop"):
            assert name not in images
            assert images.data_uri(name) is None
        assert decoded(images.data_uri("inside")).size == (LARGEST, 120)


def test_what_the_camera_wrote_stays_behind(folder):
    exif = Image.Exif()
    exif[0x010E] = "Jane Doe, born 1970"
    Image.new("RGB", (50, 50)).save(folder / "d.jpg", exif=exif, comment=b"Jane Doe")
    uri = ImageFolder(folder).data_uri("d")
    assert b"Jane Doe" in (folder / "d.jpg").read_bytes()
    assert b"Jane Doe" not in base64.b64decode(uri.partition(",")[2])


def test_odd_pictures_are_no_reason_to_fail(folder, monkeypatch):
    Image.new("RGBA", (10, 400)).save(folder / "thin.png")
    Image.new("L", (1, 1)).save(folder / "dot.png")
    images = ImageFolder(folder)
    assert decoded(images.data_uri("thin")).mode == "RGB"
    assert decoded(images.data_uri("dot")).size == (1, 1)
    assert images.data_uri("broken") is None
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # a bomb
    assert images.data_uri("a") is None


def drawn(n, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    h = 3 * rng.normal(size=(n, 3))
    h[np.arange(n), y] += 3
    return Scores.from_logits(h, y)


def test_a_missing_image_is_a_grey_tile_with_its_name(folder):
    ids = ["a", "<b>gone</b>", "../secret", "broken"] * 25
    text = render(summarise(drawn(100), drawn(100, 1), methods=["ts"], images=str(folder), ids=ids))
    assert 'no image of<br><bdi class="name">&lt;b&gt;gone&lt;/b&gt;</bdi>' in text
    assert 'aria-label="No image of ' in text
    assert text.count('<img src="data:image/jpeg') >= 3
    assert "50 of 100 test samples have one" in text


def test_without_names_the_files_in_order_are_the_samples(folder):
    found = summarise(drawn(100), drawn(4, 1), methods=["ts"], images=str(folder))
    ids = {example["id"] for group in found["gallery"]["groups"] for example in group["examples"]}
    assert ids == {"a.jpg", "b.PNG", "broken.jpg", "c.tiff"}
    with pytest.raises(InputError):
        summarise(drawn(100), drawn(5, 1), methods=["ts"], images=str(folder))


def test_bad_folders_are_told(tmp_path):
    with pytest.raises(FileError):
        ImageFolder(tmp_path / "nowhere")
    with pytest.raises(FileError):
        ImageFolder(tmp_path)


def test_no_other_program_is_run_on_a_picture(folder, monkeypatch):
    """PostScript under the name of a PNG would be run by Ghostscript."""
    ran = []
    monkeypatch.setattr(
        EpsImagePlugin, "Ghostscript", lambda *args, **_: ran.append(args) or Image.new("RGB", (9, 9)).im
    )
    Image.new("RGB", (10, 10)).save(folder / "page.eps")
    (folder / "page.eps").rename(folder / "page.png")
    assert ImageFolder(folder).data_uri("page") is None
    assert ran == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_ending_is_of_a_format_that_is_read(folder, ending):
    Image.new("RGB", (10, 10)).save(folder / f"small{ending}")
    assert ImageFolder(folder).data_uri(f"small{ending}").startswith("data:image/jpeg")
