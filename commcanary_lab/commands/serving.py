"""The verb serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb to the application."""
    app.command()(serve)


def serve(
    workspace: Annotated[Path, typer.Option("--workspace", help="Folder of traces and canaries.")] = Path("workspace"),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 5006,
    show: Annotated[bool, typer.Option("--show", help="Open a browser.")] = False,
    address: Annotated[str, typer.Option("--address", help="Where it listens; others than loopback addresses need a login.")] = "127.0.0.1",
    public_name: Annotated[list[str] | None, typer.Option("--public-name", metavar="NAME[:PORT]",
                           help="Name under which others reach it, as in the address bar. Repeatable.")] = None,
    ssl_certfile: Annotated[Path | None, typer.Option("--ssl-certfile", help="TLS certificate, PEM.")] = None,
    ssl_keyfile: Annotated[Path | None, typer.Option("--ssl-keyfile", help="Its key, PEM.")] = None,
    behind_tls_proxy: Annotated[bool, typer.Option("--behind-tls-proxy",
                                help="A proxy in front speaks TLS; its X-Forwarded headers are believed.")] = False,
    users: Annotated[Path | None, typer.Option("--users", help="File of users and roles: visitors log in.")] = None,
    add_user: Annotated[str | None, typer.Option("--add-user", metavar="NAME",
                        help="Add a user to the file, or change one, and stop. Asks for the password; or pipe it in.")] = None,
    role: Annotated[str, typer.Option("--role", help="Of the user: viewer looks and downloads; operator uploads, deletes, compiles, "
                                                     "signs off and replays, too.")] = "viewer",
    oauth_provider: Annotated[str | None, typer.Option("--oauth-provider",
                              help="Log in there; --users lists who may come in. As Panel names them: github, azure, generic ...")] = None,
    oauth_key: Annotated[str, typer.Option("--oauth-key", help="Or PANEL_OAUTH_KEY.")] = "",
    oauth_secret_file: Annotated[Path | None, typer.Option("--oauth-secret-file", help="Or PANEL_OAUTH_SECRET.")] = None,
    oauth_redirect_uri: Annotated[str, typer.Option("--oauth-redirect-uri", help="Or PANEL_OAUTH_REDIRECT_URI.")] = "",
    oauth_user_field: Annotated[str, typer.Option("--oauth-user-field",
                                                  help="Which field of the answer is the name. Or PANEL_OAUTH_JWT_USER.")] = "",
    read_only: Annotated[bool, typer.Option("--read-only", help="Everybody is a viewer.")] = False,
    unsafe_no_login: Annotated[bool, typer.Option("--unsafe-no-login",
                               help="Let EVERYBODY who reaches the address in, without a login.")] = False,
    cookie_secret_file: Annotated[Path | None, typer.Option("--cookie-secret-file",
                                  help="Signs logins across restarts. Or COMMCANARY_LAB_COOKIE_SECRET; else random.")] = None,
    max_sessions: Annotated[int, typer.Option("--max-sessions", min=1, help="Open pages.")] = 64,
    max_ranks: Annotated[int, typer.Option("--max-ranks", min=1, max=4096, help="Processes of one replay that a page starts.")] = 64,
) -> None:  # fmt: skip
    """Serve the workbench on 127.0.0.1; to others only with a login (docs/security.md)."""
    import sys
    from importlib import import_module

    from commcanary_lab.errors import InputError, MissingExtraError, UsageError

    root = Path(__file__).resolve().parents[2]
    if not (root / "apps" / "serving.py").exists():
        raise InputError("the workbench pages are not installed", file=str(root / "apps"), remedy="serve from a source checkout")
    sys.path.insert(0, str(root))
    if add_user is not None:
        if users is None:
            raise UsageError("--add-user needs --users FILE", remedy="name the file that lists the users")
        _add_user(users, add_user, role, has_password=oauth_provider is None)
        return
    try:
        import panel_material_ui  # noqa: F401
    except ImportError:
        raise MissingExtraError("the workbench needs panel", remedy="pip install 'commcanary-lab[workbench]'") from None
    options = import_module("apps.serve_options")
    oauth = None
    if oauth_provider is not None:
        oauth = options.OAuth(oauth_provider, oauth_key, oauth_secret_file, oauth_redirect_uri, oauth_user_field)
    import_module("apps.serving").serve(
        workspace, port=port, show=show, address=address, public=tuple(public_name or ()), users=users, oauth=oauth, read_only=read_only,
        unsafe_no_login=unsafe_no_login, ssl_certfile=ssl_certfile, ssl_keyfile=ssl_keyfile, behind_tls_proxy=behind_tls_proxy,
        cookie_secret_file=cookie_secret_file, max_sessions=max_sessions, max_ranks=max_ranks,
    )  # fmt: skip


def _add_user(path: Path, name: str, role: str, *, has_password: bool) -> None:
    """Ask for a password, twice on a terminal, and write it down as a hash."""
    import sys
    from getpass import getpass
    from importlib import import_module

    from commcanary_lab.errors import UsageError

    password = ""
    if has_password and sys.stdin.isatty():
        password = getpass(f"Password of {name}: ")
        if password != getpass("The same again: "):
            raise UsageError("the two passwords differ", remedy="try again; nothing was changed")
    elif has_password:
        password = sys.stdin.readline().rstrip("\r\n")
    if has_password and not password:
        raise UsageError("no password was given", remedy="type one, or pipe it in; for OAuth, give --oauth-provider, too")
    new = import_module("apps.users").add_user(path, name, role, password)
    typer.echo(f"{name} {'may log in' if new else 'was changed'}: {role}, in {path}")
