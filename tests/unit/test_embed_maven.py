"""What the machine's Maven settings say about where artifacts come from."""

from pathlib import Path

from millrace.embed.ivy import settings_document
from millrace.embed.maven import Repository, configured_repositories, settings_files

NAMESPACE = 'xmlns="http://maven.apache.org/SETTINGS/1.2.0"'


def settings(tmp_path: Path, body: str, name: str = "settings.xml") -> Path:
    file = tmp_path / name
    file.write_text(f"<settings {NAMESPACE}>{body}</settings>")
    return file


def mirror(identity: str, mirror_of: str, url: str = "https://mirror.test/m") -> str:
    return f"<mirrors><mirror><id>{identity}</id><mirrorOf>{mirror_of}</mirrorOf><url>{url}</url></mirror></mirrors>"


def test_no_settings_mean_no_say(tmp_path: Path) -> None:
    assert configured_repositories((tmp_path / "absent.xml",)) == ()
    assert configured_repositories((settings(tmp_path, ""),)) == ()


def test_only_mirrors_that_cover_central_count(tmp_path: Path) -> None:
    covering = ("*", "central", "external:*", "other, central", "*,!private")
    for pattern in covering:
        found = configured_repositories((settings(tmp_path, mirror("m", pattern)),))
        assert found == (Repository("m", "https://mirror.test/m"),), pattern
    for pattern in ("other", "*,!central", "external:http:*"):
        assert configured_repositories((settings(tmp_path, mirror("m", pattern)),)) == (), pattern


def test_repositories_of_active_profiles_count(tmp_path: Path) -> None:
    def profile(identity: str, extra: str = "") -> str:
        where = f"<repository><id>{identity}-repo</id><url>https://{identity}.test</url></repository>"
        return f"<profile><id>{identity}</id>{extra}<repositories>{where}</repositories></profile>"

    by_default = "<activation><activeByDefault>true</activeByDefault></activation>"
    profiles = profile("named") + profile("default", by_default) + profile("asleep")
    active = "<activeProfiles><activeProfile>named</activeProfile></activeProfiles>"
    found = configured_repositories((settings(tmp_path, f"<profiles>{profiles}</profiles>{active}"),))
    assert [each.id for each in found] == ["named-repo", "default-repo"]


def test_credentials_come_from_the_environment_and_stay_out_of_the_repr(tmp_path: Path) -> None:
    server = "<servers><server><id>m</id><username>u</username><password>${env.SECRET}</password></server></servers>"
    file = settings(tmp_path, mirror("m", "*") + server)
    (found,) = configured_repositories((file,), {"SECRET": "hush"})
    assert (found.username, found.password) == ("u", "hush")
    assert "hush" not in repr(found)


def test_the_users_settings_win_over_the_machines(tmp_path: Path) -> None:
    user = settings(tmp_path, mirror("m", "*", "https://user.test"), "user.xml")
    machine = settings(tmp_path, mirror("m", "*", "https://machine.test"), "machine.xml")
    (found,) = configured_repositories((user, machine))
    assert found.url == "https://user.test"


def test_maven_looks_in_the_users_home_first() -> None:
    files = settings_files({"HOME": "/home/someone", "MAVEN_HOME": "/opt/maven"})
    assert files[:2] == (Path("/home/someone/.m2/settings.xml"), Path("/opt/maven/conf/settings.xml"))


def test_ivy_asks_the_repositories_in_order_with_their_credentials() -> None:
    document = settings_document([Repository("a", "https://a.test/x", "u", "p"), Repository("b", "https://b.test")])
    assert [(each.get("name"), each.get("root")) for each in document.iter("ibiblio")] == [
        ("a", "https://a.test/x"),
        ("b", "https://b.test"),
    ]
    (credentials,) = document.iterfind("credentials/credentials")
    assert credentials.attrib == {"host": "a.test", "username": "u", "passwd": "p"}
