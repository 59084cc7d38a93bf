"""Explainers on the Hugging Face Hub: a folder stands for it, laid out and linked as the hub's cache is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from quick import FRAME, TABLE, TEXTS, labels, quick_explainer, quick_fit
from sointer.errors import InputError, LoadError
from sointer.integrations.hub import from_pretrained, make_card, push_to_hub, save_pretrained

hub = pytest.importorskip("huggingface_hub")


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """Repositories as folders; what is downloaded are links to blobs, as in the real cache."""
    repositories, cache = tmp_path / "hub", tmp_path / "cache"

    def create_repo(self, repo_id, *, private=None, exist_ok=False):
        (repositories / repo_id).mkdir(parents=True, exist_ok=exist_ok)

    def upload_folder(self, *, repo_id, folder_path, revision, commit_message, delete_patterns):
        for pattern in delete_patterns:
            for old in (repositories / repo_id).glob(pattern):
                old.unlink()
        shutil.copytree(folder_path, repositories / repo_id, dirs_exist_ok=True)
        return f"https://hub/{repo_id}/commit/1"

    def snapshot_download(repo_id, *, revision, token, cache_dir, allow_patterns):
        snapshot = cache / repo_id / "snapshots"
        shutil.rmtree(cache, ignore_errors=True)
        snapshot.mkdir(parents=True)
        for file in (repositories / repo_id).iterdir():
            if any(file.match(pattern) for pattern in allow_patterns):
                blob = cache / f"blob-{file.name}"
                shutil.copy(file, blob)
                (snapshot / file.name).symlink_to(blob)
        return str(snapshot)

    monkeypatch.setattr(hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(hub.HfApi, "upload_folder", upload_folder)
    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    return repositories


@pytest.mark.parametrize(("kind", "X"), [("table", TABLE), ("frame", FRAME), ("texts", TEXTS)])
def test_pushed_and_loaded_it_explains_the_same(kind, X, remote):
    explainer = quick_explainer(kind)
    assert push_to_hub(explainer, "me/why", rows="keep").startswith("https://")
    target = explainer.targets_[0]
    loaded = from_pretrained("me/why", explainer.model)
    mine, theirs = explainer.explain(X[:9], target), loaded.explain(X[:9], target)
    np.testing.assert_array_equal(mine.scores, theirs.scores)
    np.testing.assert_array_equal(mine.selected, theirs.selected)
    assert {file.suffix for file in (remote / "me/why").iterdir()} == {".json", ".safetensors", ".md"}


def test_by_default_no_training_row_leaves_the_house(remote, tmp_path):
    from safetensors.numpy import load_file

    odd = np.round(TABLE, 12) + np.arange(len(TABLE))[:, None] * 1e-5
    explainer = quick_fit(labels, odd)
    push_to_hub(explainer, "me/why")
    found = [value for array in arrays(remote / "me/why", load_file) for value in array.ravel().tolist()]
    assert len(set(odd.ravel().tolist()) & set(found)) <= odd.shape[1], "medians are there, nothing else"
    assert "No training rows are inside." in (remote / "me/why" / "README.md").read_text()
    push_to_hub(explainer, "me/why", rows="keep")
    found = [value for array in arrays(remote / "me/why", load_file) for value in array.ravel().tolist()]
    assert set(odd.ravel().tolist()) <= set(found), "so the check above could have failed"
    assert "training rows are inside, number for number" in (remote / "me/why" / "README.md").read_text()
    assert len(list((remote / "me/why").glob("weights-*"))) == 1, "the weights before are gone"


def arrays(folder: Path, load_file):
    return [array for file in folder.glob("*.safetensors") for array in load_file(file).values()]


def test_a_folder_will_do_and_the_card_is_true(tmp_path):
    explainer = quick_explainer("frame")
    folder = save_pretrained(explainer, tmp_path / "why", rows="synthetic")
    save_pretrained(explainer, folder)  # once more
    assert from_pretrained(folder).explain(FRAME[:2], "warm").value_source == "expected"
    card = (folder / "README.md").read_text()
    front, body = card.split("---\n")[1:3]
    assert front.splitlines()[0] == "library_name: sointer"
    assert "- tables" in front
    assert f"{explainer.n_queries_:,} queries" in body
    assert f"| warm | binary | {explainer.output_agreement_[0]:.1%} |" in body
    named = quick_fit(labels, TABLE, output_names=["a|b", "<script>", "---\nlicense: mit"])
    rows = [line for line in make_card(named, "none").splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 3
    assert "<script>" not in "".join(rows)


def test_what_is_no_explainer_is_refused(remote):
    with pytest.raises(InputError, match="expected a fitted SOInter"):
        push_to_hub(object(), "me/why")
    push_to_hub(quick_explainer("table"), "me/why")
    damaged = remote / "me/why" / "explainer.json"
    damaged.write_text(json.dumps(json.loads(damaged.read_text()) | {"targets": [0]}))
    with pytest.raises(LoadError, match=r"^me/why/explainer.json is not what was saved"):
        from_pretrained("me/why")
    damaged.unlink()
    (remote / "me/why" / "model.pkl").write_bytes(b"never read")
    with pytest.raises(LoadError, match="is not a saved explainer"):
        from_pretrained("me/why")
