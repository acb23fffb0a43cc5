"""What nothing may read, wherever the places around it can be read: the agent's own state, credentials.

Most of it is out of reach anyway, since only what is on a list can be read.  It is named for the cases in
which a list reaches it: a workspace or a readable directory that contains it, /etc for root's tools.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_SYSTEM = (
    "docker/key.json", "gshadow", "gshadow-", "ipsec.secrets", "krb5.keytab", "kubernetes",
    "letsencrypt/archive", "letsencrypt/live", "NetworkManager/system-connections", "pki/tls/private",
    "ppp/chap-secrets", "ppp/pap-secrets", "security/opasswd", "shadow", "shadow-", "ssl/private", "sudoers",
    "sudoers.d", "wireguard", "wpa_supplicant",
)  # fmt: skip
"""Below /etc.  For an ordinary user their modes close them already; root's tools are kept out by this."""
_OF_THE_USER = (
    ".aws", ".azure", ".bash_history", ".boto", ".cargo/credentials", ".cargo/credentials.toml",
    ".claude.json", ".claude/.credentials.json", ".codex/auth.json", ".composer/auth.json",
    ".config/chromium", ".config/doctl", ".config/filezilla", ".config/gcloud", ".config/gh",
    ".config/git/credentials",
    ".config/glab-cli", ".config/google-chrome", ".config/hub", ".config/op", ".config/polier",
    ".config/rclone", ".config/sops", ".databrickscfg", ".docker", ".electrum", ".fly", ".gem/credentials",
    ".gemini/oauth_creds.json", ".git-credentials", ".gnupg", ".gradle/gradle.properties", ".history",
    ".kube", ".lesshst", ".local/share/fish/fish_history", ".local/share/keyrings", ".local/share/kwalletd",
    ".local/share/recently-used.xbel", ".m2/settings-security.xml", ".m2/settings.xml", ".mozilla",
    ".my.cnf", ".mysql_history", ".netrc", ".node_repl_history", ".npmrc", ".nuget/NuGet/NuGet.Config",
    ".oci", ".password-store", ".pgpass", ".psql_history", ".pypirc", ".python_history", ".rediscli_history",
    ".s3cfg", ".sqlite_history", ".ssh", ".terraform.d", ".thunderbird", ".vault-token", ".viminfo",
    ".wget-hsts", ".yarnrc.yml", ".zsh_history", "snap/chromium", "snap/firefox",
)  # fmt: skip
"""Below the home directory: keys, tokens, browsers' profiles, histories."""
_NAMED_BY = (
    "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "CLOUDSDK_CONFIG", "DOCKER_CONFIG", "GH_CONFIG_DIR",
    "GNUPGHOME", "GOOGLE_APPLICATION_CREDENTIALS", "HISTFILE", "KUBECONFIG", "NETRC", "NPM_CONFIG_USERCONFIG",
    "PGPASSFILE", "PIP_CONFIG_FILE",
)  # fmt: skip
"""Variables with which a user moves them elsewhere."""


def hidden_places(
    state: Path, home: Path, workspace: Path, environ: Mapping[str, str], in_workspace: Iterable[Path]
) -> Iterator[Path]:
    """Real paths of what exists.  Never the workspace or what is above it."""
    wanted = [state, *(Path("/etc", name) for name in _SYSTEM), *Path("/etc/ssh").glob("*_key")]
    wanted += [home / name for name in _OF_THE_USER]
    wanted += [Path(environ[name]) for name in _NAMED_BY if environ.get(name, "").startswith("/")]
    wanted += in_workspace
    closed = (Path("/"), home, *home.parents, workspace, *workspace.parents)
    found: dict[Path, None] = {}
    for path in wanted:
        with contextlib.suppress(OSError, RuntimeError):
            if (real := path.resolve(strict=True)) not in closed or path == state:
                found[real] = None
    # What lies below another one needs no name of its own.
    yield from (path for path in found if not any(above in found for above in path.parents))
