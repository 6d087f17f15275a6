"""Where settings come from: the flag, then the environment, then the config file, then the default."""

import pytest

from tests.cli.shell import Shell


def databases(shell: Shell) -> list[str]:
    return sorted(path.name for path in shell.folder.glob("*.db"))


def greets(shell: Shell, *words: str, **variables: str) -> None:
    assert shell("run", "shop:greet", '["a"]', *words, **variables).json == "hello a"


def test_the_flag_comes_before_the_environment_before_the_file_before_the_default(shell: Shell) -> None:
    greets(shell)
    (shell.folder / "perdure.toml").write_text('url = "sqlite:///file.db"\n')
    greets(shell)
    greets(shell, PERDURE_URL="sqlite:///environment.db")
    greets(shell, "--url", "sqlite:///flag.db", PERDURE_URL="sqlite:///other.db")
    assert databases(shell) == ["environment.db", "file.db", "flag.db", "perdure.db"]


def test_a_project_may_have_its_settings_in_pyproject(shell: Shell) -> None:
    (shell.folder / "pyproject.toml").write_text('[project]\nname = "shop"\n[tool.perdure]\nurl = "sqlite:///p.db"\n')
    greets(shell)
    (shell.folder / "else.toml").write_text('url = "sqlite:///else.db"\n')
    greets(shell, PERDURE_CONFIG="else.toml")
    (shell.folder / "perdure.toml").write_text('url = "sqlite:///first.db"\n')
    greets(shell)
    assert databases(shell) == ["else.db", "first.db", "p.db"]


def test_a_pyproject_that_does_not_speak_of_us_is_not_read(shell: Shell) -> None:
    """It may be anything; only what concerns us can be wrong."""
    (shell.folder / "pyproject.toml").write_text("this is not TOML")
    greets(shell)
    assert databases(shell) == ["perdure.db"]


def test_namespaces_are_apart(shell: Shell) -> None:
    greets(shell, "--id", "g-1", "--namespace", "blue")
    greets(shell, "--id", "g-1", PERDURE_NAMESPACE="red")
    assert shell("list").json == []
    assert len(shell("list", "--namespace", "blue").json) == 1
    assert shell("show", "g-1", PERDURE_NAMESPACE="red").json["namespace"] == "red"
    (shell.folder / "perdure.toml").write_text('namespace = "red"\n')
    assert [run["namespace"] for run in shell("list").json] == ["red"]
    _, seen = shell.at_terminal("show", "g-1", "--namespace", "blue")
    assert "every step: perdure events g-1 --namespace blue\n" in seen


def test_a_worker_finds_its_modules_in_the_config_file(shell: Shell) -> None:
    (shell.folder / "perdure.toml").write_text('modules = ["nowhere"]\n')
    done = shell("worker")
    assert done.code == 64
    assert "no module named 'nowhere' can be imported" in done.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "url = sqlite",
            "the config file 'perdure.toml' is not TOML: Invalid value (at line 1, column 7); for example",
        ),
        ("ulr = 'x'", "sets 'ulr', which does not exist (did you mean url?); there are url, namespace, modules"),
        ("url = 7", "the config file 'perdure.toml' sets url to 7; it takes a text"),
        ("modules = 'shop'", "the config file 'perdure.toml' sets modules to 'shop'; it takes an array of texts"),
        ("url = 'mysql://x'", "the URL 'mysql://x' names no store"),
    ],
)
def test_a_mistake_in_the_config_file_is_told(shell: Shell, text: str, said: str) -> None:
    (shell.folder / "perdure.toml").write_text(text)
    done = shell("doctor")
    assert (done.code, done.out, done.err.count("\n")) == (64, "", 1)
    assert said in done.err
    assert shell("doctor", "--help").code == 0
    assert shell("--help").code == 0


def test_a_config_file_that_was_named_must_be_there(shell: Shell) -> None:
    done = shell("list", PERDURE_CONFIG="nope.toml")
    assert done.code == 64
    assert "the config file 'nope.toml' cannot be read: No such file or directory; see PERDURE_CONFIG" in done.err
