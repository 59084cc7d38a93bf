"""A token that every request must bring."""

from __future__ import annotations

import signal

import pytest

pytest.importorskip("httpx")
pytest.importorskip("fastapi")
pytest.importorskip("typer")

import httpx
from typer.testing import CliRunner

from model_server import serve
from quick import TABLE
from quick import quick_explainer as fitted
from serving import command
from sointer.apps.cli.app import build_app
from sointer.apps.serve import create_app, run
from sointer.apps.serve.security import host_name
from sointer.errors import InputError

TOKEN = "correct-horse-battery-staple"
BODY = {"rows": TABLE[:1].tolist(), "target": 1}
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def url():
    with serve(create_app(fitted("table"), token=TOKEN)) as url:
        yield url


def test_requests_need_the_token(url):
    for path in ("/info", "/metrics", "/openapi.json", "/v2", "/v2/models/explainer", "/nowhere"):
        refused = httpx.get(url + path)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
        assert "Bearer" in refused.json()["error"]
    assert httpx.post(f"{url}/explain", json=BODY).status_code == 401
    assert httpx.post(f"{url}/explain", json=BODY, headers=BEARER, timeout=60).status_code == 200
    assert httpx.get(f"{url}/info", headers={"Authorization": f"bearer  {TOKEN}"}).status_code == 200


@pytest.mark.parametrize(
    "wrong", ["", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", TOKEN, f"Digest {TOKEN}", "Basic ?", "Basic é"]
)
def test_wrong_tokens(url, wrong):
    assert httpx.get(f"{url}/info", headers={"Authorization": wrong.encode("latin-1")}).status_code == 401


def test_browsers_ask_for_it_as_a_password(url):
    refused = httpx.get(url, headers={"Accept": "text/html,*/*"})
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Basic ")
    page = httpx.get(url, auth=("anyone", TOKEN))
    assert page.status_code == 200
    assert TOKEN not in page.text
    assert "SOINTER_TOKEN" in page.text  # in the command that the page shows
    assert httpx.get(url, auth=("anyone", "x" + TOKEN)).status_code == 401


def test_probes_need_none(url):
    for path in ("/healthz", "/v2/health/live", "/v2/health/ready"):
        assert httpx.get(url + path).status_code == 200


def test_the_token_is_kept_as_a_digest(url):
    app = create_app(fitted("table"), token=TOKEN)
    assert TOKEN not in repr(app.user_middleware)
    with pytest.raises(InputError, match="16 ASCII characters") as caught:
        create_app(fitted("table"), token="too short")
    assert "too short" not in str(caught.value)


def test_the_command_takes_it_and_never_says_it(tmp_path):
    fitted("table").save(tmp_path / "why")
    (tmp_path / "token").write_text(TOKEN + "\n")
    with command(tmp_path / "why", "--host", "0.0.0.0", "--token-file", tmp_path / "token") as (url, process):
        url = url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{url}/info").status_code == 401
        assert httpx.get(f"{url}/info", headers=BEARER).status_code == 200
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
        assert TOKEN not in said
        assert "TLS" in said


def test_the_command_takes_it_from_a_variable(tmp_path, monkeypatch):
    fitted("table").save(tmp_path / "why")
    given = {}
    monkeypatch.setenv("SOINTER_TOKEN", TOKEN)
    monkeypatch.setattr("sointer.apps.serve.run", lambda *_, **options: given.update(options))
    done = CliRunner().invoke(build_app(), ["serve", str(tmp_path / "why")])
    assert done.exit_code == 0, done.output
    assert given["token"] == TOKEN
    assert TOKEN not in done.output


def test_without_a_token_other_machines_are_warned_of(monkeypatch, capsys):
    monkeypatch.setattr("sointer.apps.serve.server.Server.run", lambda *_, **__: None)
    run(fitted("table"), host="127.0.0.1", port=0)
    assert "set a token" not in capsys.readouterr().err
    run(fitted("table"), host="0.0.0.0", port=0)
    assert "set a token" in capsys.readouterr().err


def test_an_app_answers_to_this_machine_alone_by_default():
    """Else any page could reach it by pointing its own name at this machine."""
    with serve(create_app(fitted("table"))) as url:
        assert httpx.get(f"{url}/info").status_code == 200
        assert httpx.get(f"{url}/info", headers={"Host": "evil.example"}).status_code == 421
    with serve(create_app(fitted("table"), hosts=None)) as url:
        assert httpx.get(f"{url}/info", headers={"Host": "any.example"}).status_code == 200


def test_an_address_in_brackets_is_all_of_the_name():
    assert host_name("[::1]:80") == "::1"
    assert host_name("[::1].evil.example") == "[::1].evil.example"
